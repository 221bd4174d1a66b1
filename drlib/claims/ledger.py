"""The ledger: conclusions of the paper in our words, each with its place, its tables and what decides it.

Nothing here says how a claim turns out; `drlib.claims.examine` does, on any results table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from drlib.claims import conclusions as decide
from drlib.claims.facts import Facts
from drlib.claims.judging import Case, Quantifier

EVERY, MOST, SOME = Quantifier

BY_SET, TOGETHER = "data set by data set", "all data sets together"
_ROWS = "Over which rows: within each data set, or all data sets together?"

IMAGES = (2, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24)
NINE = (2, 17, 18, 19, 20, 21, 22, 23, 24)
"""The tables of convolutional networks on the three main data sets, which Figure 2 is read as showing."""

_OTHERS = tuple(number for number in IMAGES if number != 2)
_CELEBA = (13, 14, 17, 18)
_RELATIVE = "difference as a share of the mean value"
_TAU = "Kendall's rank correlation with size; negative: falls"
_METRICS = "FID, SSIM, PSNR, MSE of attacks"
_FID = "FID of attacks"


FAVORS, OPPOSES, UNCLEAR = "works for it", "works against it", "works either way"
"""What a change of n or k does to a claim: more images lower a Frechet distance, more candidates bring the
nearest one nearer and make the best of them better."""


@dataclass(frozen=True)
class Reading:
    """Another way to read a sentence that does not say which rows or metrics it means."""

    name: str
    cases: Callable[[Facts], list[Case]]


@dataclass(frozen=True)
class Claim:
    """One conclusion.

    Attributes:
        id: short name, lower-case words joined by hyphens.
        place: the section of the paper.
        statement: what it says, in our words.
        how: what is compared, in words.
        unit: of the effect, and what positive means.
        needs: what must be in a table for it to be judged.
        tables: of the paper, those that the sentence speaks of; ``elsewhere``: others with the same columns.
        quantifier: how many cases it speaks of.
        cases: decides it; where the sentence can be read in several ways, under the one named ``reading``.
        readings: the other ways.
        across: what else changes along the comparison, ``n`` (images of a Frechet distance) or ``k``
            (candidates per class of a nearest neighbor, of a memorization score or of a best-of-k choice),
            and whether that works for the claim or against it.
        question: what one would ask the authors.
    """

    id: str
    place: str
    statement: str
    how: str
    unit: str
    needs: str
    tables: tuple[int, ...]
    quantifier: Quantifier
    cases: Callable[[Facts], list[Case]]
    elsewhere: tuple[int, ...] = ()
    reading: str = ""
    readings: tuple[Reading, ...] = ()
    across: dict[str, str] = field(default_factory=dict)
    question: str = ""


CLAIMS: tuple[Claim, ...] = (
    # --- section 3.1 -----------------------------------------------------------------------------------
    Claim(
        id="model-and-data-together",
        place="3.1",
        statement=(
            "PLGMI, which uses both the model and auxiliary data, does better than attacks that use "
            "one of them alone."
        ),
        how="PLGMI against the other static attacks that are not GAN-based, every metric and size",
        unit=f"{_RELATIVE}; positive: PLGMI closer",
        needs=_METRICS,
        tables=(2,),
        quantifier=EVERY,
        cases=decide.plgmi_ahead,
        elsewhere=_OTHERS,
        reading="every metric",
        readings=(Reading("FID alone", decide.plgmi_ahead_by_frechet),),
        across={"k": OPPOSES},
        question="Which metric is meant?",
    ),
    # --- section 5.1 -----------------------------------------------------------------------------------
    Claim(
        id="no-exact-reconstruction",
        place="5.1",
        statement="No attack reconstructs the target data set exactly.",
        how="mean SSIM against 1, every attack and size",
        unit="1 - SSIM; positive: not exact",
        needs="SSIM of attacks",
        tables=(2,),
        quantifier=EVERY,
        cases=decide.never_exact,
        elsewhere=_OTHERS,
    ),
    Claim(
        id="gans-lowest-fid",
        place="5.1",
        statement=(
            "On CelebA at the largest size the three GAN-based attacks are closer by FID than all others."
        ),
        how="each GAN attack against each other attack at the largest size",
        unit="FID; positive: GAN attack closer",
        needs=_FID,
        tables=(2,),
        quantifier=EVERY,
        cases=decide.gans_ahead,
        elsewhere=_CELEBA,
        across={"n": FAVORS},
    ),
    Claim(
        id="updates-leak-below-deep-leakage",
        place="5.1",
        statement="Of the two attacks on updates, Updates-Leak has the lower FID.",
        how="Updates-Leak against Deep-Leakage at the largest size",
        unit="FID; positive: Updates-Leak closer",
        needs=_FID,
        tables=(2,),
        quantifier=EVERY,
        cases=decide.updates_leak_ahead,
        elsewhere=_CELEBA,
    ),
    Claim(
        id="same-pattern-on-other-data",
        place="5.1",
        statement="This pattern holds on the other two data sets.",
        how="the comparisons of the claims before, on CIFAR-10 and MNIST",
        unit="FID; positive: as claimed",
        needs=_FID,
        tables=(19, 20, 21, 22, 23, 24),
        quantifier=EVERY,
        cases=decide.updates_pattern,
        reading="the two attacks on updates",
        readings=(Reading("these and the GAN-based attacks", decide.both_patterns),),
        question=(
            "Which pattern is meant: that of the attacks on updates, or that of the GAN-based attacks, too?"
        ),
    ),
    Claim(
        id="deep-inversion-falls-with-complexity",
        place="5.1",
        statement="DeepInversion gets worse with the complexity of the data: MNIST, CIFAR-10, CelebA.",
        how="FID on the simpler against the more complex data set at the largest size",
        unit="FID; positive: simpler closer",
        needs="FID of DeepInversion on MNIST, CIFAR10 and CelebA",
        tables=(2, 19, 22),
        quantifier=EVERY,
        cases=decide.deep_inversion_by_complexity,
        elsewhere=(17, 18, 20, 21, 23, 24),
    ),
    Claim(
        id="gans-stay-low",
        place="5.1",
        statement="GAN-based attacks such as PLGMI, in contrast, keep a low FID on all three.",
        how="GAN-based attacks against the median of the static attacks at the largest size",
        unit="FID; positive: below the median",
        needs="FID of static attacks on two data sets or more",
        tables=(2, 19, 22),
        quantifier=EVERY,
        cases=decide.gans_below_median,
        elsewhere=(17, 18, 20, 21, 23, 24),
        reading="below the median attack",
        readings=(Reading("PLGMI varies less over the data sets than DeepInversion", decide.plgmi_steadier),),
    ),
    Claim(
        id="fid-prefers-deep-inversion",
        place="5.1",
        statement="By FID, DeepInversion on CelebA is closer than Inv-Alignment, against what one sees.",
        how="DeepInversion against Inv-Alignment at the largest size",
        unit="FID; positive: DeepInversion closer",
        needs=_FID,
        tables=(2,),
        quantifier=EVERY,
        cases=decide.frechet_prefers_deep_inversion,
        elsewhere=(17, 18),
    ),
    Claim(
        id="samples-prefer-inv-alignment",
        place="5.1",
        statement="All three sample-level metrics prefer Inv-Alignment to DeepInversion.",
        how="Inv-Alignment against DeepInversion at the largest size, by SSIM, PSNR and MSE",
        unit=f"{_RELATIVE}; positive: Inv-Alignment closer",
        needs="SSIM, PSNR, MSE of attacks",
        tables=(2,),
        quantifier=EVERY,
        cases=decide.samples_prefer_inv_alignment,
        elsewhere=(17, 18),
    ),
    Claim(
        id="levels-agree",
        place="5.1",
        statement=("Attacks that do well at the level of data sets tend to do well at the level of samples."),
        how=(
            "Kendall's correlation over attacks between FID and each sample-level metric, table by "
            "table and size by size"
        ),
        unit="rank correlation; positive: the metrics agree",
        needs=_METRICS,
        tables=NINE,
        quantifier=MOST,
        cases=decide.levels_agree,
        elsewhere=(13, 14, 15),
        across={"n": UNCLEAR, "k": UNCLEAR},
        question="Over which rows, and by which measure of agreement?",
    ),
    Claim(
        id="higher-fid-lower-ssim",
        place="5.1",
        statement="Reconstructions with a higher FID typically have a lower SSIM.",
        how="Pearson correlation over all attacks, models and sizes",
        unit="correlation; positive: the metrics agree",
        needs="FID and SSIM of attacks",
        tables=NINE,
        quantifier=MOST,
        cases=decide.frechet_against_ssim,
        elsewhere=(15,),
        across={"n": UNCLEAR, "k": UNCLEAR},
        reading=BY_SET,
        readings=(Reading(TOGETHER, decide.frechet_against_ssim_together),),
    ),
    Claim(
        id="higher-fid-farther-by-others",
        place="5.1",
        statement="Similar trends are seen with the other sample-level metrics.",
        how="Pearson correlation of FID with PSNR and MSE over all attacks, models and sizes",
        unit="correlation; positive: the metrics agree",
        needs="FID, PSNR and MSE of attacks",
        tables=NINE,
        quantifier=MOST,
        cases=decide.frechet_against_others,
        elsewhere=(15,),
        reading=BY_SET,
        readings=(Reading(TOGETHER, decide.frechet_against_others_together),),
        across={"n": UNCLEAR, "k": UNCLEAR},
        question=_ROWS,
    ),
    Claim(
        id="relation-is-weak",
        place="5.1",
        statement="The correlation of dataset-level with sample-level metrics is relatively weak.",
        how=f"absolute Pearson correlation of FID with SSIM, PSNR and MSE below {decide.WEAK}",
        unit="correlation; positive: the metrics agree",
        needs=_METRICS,
        tables=NINE,
        quantifier=EVERY,
        cases=decide.weak_relation,
        across={"n": UNCLEAR, "k": UNCLEAR},
        reading=TOGETHER,
        readings=(Reading(BY_SET, decide.weak_relation_by_set),),
        question=_ROWS,
    ),
    Claim(
        id="fid-close-ssim-far",
        place="5.1",
        statement="MI-Face and DeepDream are alike by FID on CelebA and far apart by SSIM.",
        how="relative difference of the two attacks by SSIM less that by FID at the largest size",
        unit=f"{_RELATIVE}; positive: farther apart by SSIM",
        needs="FID and SSIM of MI-Face and DeepDream",
        tables=(2,),
        quantifier=EVERY,
        cases=decide.frechet_close_ssim_far,
        elsewhere=(17, 18),
    ),
    Claim(
        id="metrics-agree-among-gans",
        place="5.1",
        statement=(
            "Among the GAN-based attacks FID is more closely related to the sample-level metrics than "
            "among all."
        ),
        how="Pearson correlation with its sign, among GAN attacks less among all",
        unit="correlation; positive: the metrics agree more",
        needs=_METRICS,
        tables=NINE,
        quantifier=EVERY,
        cases=decide.frechet_rises_among_gans,
        across={"n": UNCLEAR, "k": UNCLEAR},
        reading=BY_SET,
        readings=(Reading(TOGETHER, decide.frechet_rises_among_gans_together),),
        question="Which rows give the coefficients among GAN-based attacks?",
    ),
    Claim(
        id="bias-rec-coverages-differ",
        place="5.1",
        statement=(
            "Low-quality reconstructions have coverages that differ between metrics: Bias-Rec by SSIM "
            "and by PSNR."
        ),
        how=(
            "difference of Bias-Rec's two coverages less the largest difference of a GAN attack, every size"
        ),
        unit="percentage points; positive: Bias-Rec's differ more",
        needs="coverage by SSIM and PSNR",
        tables=(2,),
        quantifier=EVERY,
        cases=decide.bias_rec_coverages_differ,
        elsewhere=_OTHERS,
        across={"k": UNCLEAR},
    ),
    Claim(
        id="coverages-agree-among-gans",
        place="5.1",
        statement=(
            "Without low-quality reconstructions the coverages by different metrics agree much better."
        ),
        how=(
            "Pearson correlation of coverage by SSIM with coverage by PSNR and by MSE, among GAN "
            "attacks less among all"
        ),
        unit="correlation; positive: they agree more",
        needs="coverage by SSIM, PSNR and MSE",
        tables=NINE,
        quantifier=EVERY,
        cases=decide.coverage_rises_among_gans,
        across={"k": UNCLEAR},
        reading=BY_SET,
        readings=(Reading(TOGETHER, decide.coverage_rises_among_gans_together),),
    ),
    Claim(
        id="metrics-still-distinct",
        place="5.1",
        statement="Even then the two levels are too different for one of them to be left out.",
        how=(
            "pairs of GAN attacks on the same targets that FID and a sample-level metric put in opposite "
            f"order: more than {decide.SAME_ORDER:.0%}"
        ),
        unit="share of pairs in opposite order",
        needs=_METRICS,
        tables=NINE,
        quantifier=EVERY,
        cases=decide.gans_still_disagree,
    ),
    Claim(
        id="coverage-falls-with-size",
        place="5.1",
        statement="Coverage declines as the training data set grows.",
        how=(
            "coverage at the largest size less that at the smallest, static attacks (the targets of the "
            "others are always 100), every metric"
        ),
        unit="percentage points; negative: declines",
        needs="coverage at two sizes or more",
        tables=(2,),
        quantifier=EVERY,
        cases=decide.coverage_falls,
        elsewhere=_OTHERS,
        across={"k": FAVORS},
    ),
    # --- section 5.2 -----------------------------------------------------------------------------------
    Claim(
        id="memorization-falls-with-size",
        place="5.2",
        statement="A model's memorization score falls as its training set grows.",
        how="each size against the next smaller",
        unit="memorization; negative: falls",
        needs="memorization at two sizes or more",
        tables=(2,),
        quantifier=EVERY,
        cases=decide.memorization_falls,
        elsewhere=IMAGES[1:],
        across={"k": FAVORS},
    ),
    Claim(
        id="attacks-differ-in-trend",
        place="5.2",
        statement="Attacks react differently to falling memorization: some get closer, others farther.",
        how=("pairs of attacks whose FID moves in opposite directions from the smallest to the largest size"),
        unit="FID between the two changes",
        needs="FID at two sizes or more",
        tables=(2,),
        quantifier=SOME,
        cases=decide.attacks_disagree,
        elsewhere=_OTHERS,
        across={"n": UNCLEAR},
    ),
    Claim(
        id="deep-dream-fid-falls",
        place="5.2",
        statement="DeepDream's FID decreases as the memorization score drops from 1.000 to 0.301.",
        how="DeepDream's FID at the smallest size less that at the largest",
        unit="FID; positive: decreases",
        needs="FID of DeepDream at two sizes or more",
        tables=(2,),
        quantifier=EVERY,
        cases=decide.deep_dream_falls,
        elsewhere=_CELEBA,
        across={"n": FAVORS},
        question="Is it meant that DeepDream's FID increases, so that its quality falls?",
    ),
    Claim(
        id="revealer-improves",
        place="5.2",
        statement="Revealer gets closer by FID as memorization decreases.",
        how="each size against the next smaller",
        unit="FID; positive: closer at the larger size",
        needs="FID of Revealer at two sizes or more",
        tables=(2,),
        quantifier=EVERY,
        cases=decide.revealer_improves,
        elsewhere=_OTHERS,
        across={"n": FAVORS},
    ),
    # --- section 6.1 -----------------------------------------------------------------------------------
    Claim(
        id="judge-falls-with-size",
        place="6.1",
        statement="By a language model's judgment, reconstructions get worse as memorization decreases.",
        how="rank correlation with size of each measure, attack by attack",
        unit=_TAU,
        needs="a judge's counts or rates",
        tables=(3,),
        quantifier=EVERY,
        cases=decide.judge_falls,
        across={"k": OPPOSES},
    ),
    Claim(
        id="other-judges-too",
        place="6.1",
        statement="The same is found with InternVL 2.5 and Claude 3.7 as judges.",
        how="rank correlation with size of each measure, judge by judge",
        unit=_TAU,
        needs="a judge's counts or rates",
        tables=(4,),
        quantifier=EVERY,
        cases=decide.judge_falls,
        across={"k": OPPOSES},
    ),
    Claim(
        id="judge-against-metrics",
        place="6.1",
        statement="This contrasts with what the earlier metrics say.",
        how=(
            "metrics of the GAN attacks that get closer from the smallest to the largest size while "
            "the judge's votes fall"
        ),
        unit=f"{_RELATIVE}; positive: closer at the largest size by the metric",
        needs="a judge's counts and the same attacks' metrics",
        tables=(2, 3),
        quantifier=EVERY,
        cases=decide.judge_against_metrics,
        across={"n": FAVORS, "k": FAVORS},
    ),
    Claim(
        id="best-at-1000",
        place="6.1",
        statement="For each attack the judge prefers the smallest training set.",
        how="the smallest size against the best of the others, every measure",
        unit=f"{_RELATIVE}; positive: the smallest is best",
        needs="a judge's counts or rates",
        tables=(3,),
        quantifier=EVERY,
        cases=decide.best_at_smallest,
        elsewhere=(4,),
        across={"k": OPPOSES},
    ),
    Claim(
        id="second-best-in-the-middle",
        place="6.1",
        statement=(
            "The second best is frequently a medium size (5,000 or 10,000), not the next larger one (2,000)."
        ),
        how="the better of the two middle sizes against the second smallest, every measure",
        unit=f"{_RELATIVE}; positive: the middle is better",
        needs="a judge's counts or rates at six sizes",
        tables=(3,),
        quantifier=MOST,
        cases=decide.second_in_the_middle,
        elsewhere=(4,),
        across={"k": FAVORS},
    ),
    Claim(
        id="pre-training-raises-accuracy",
        place="6.1",
        statement="A pre-trained and fine-tuned model has a better test accuracy.",
        how="test accuracy with against without pre-training",
        unit="accuracy; positive: better pre-trained",
        needs="test accuracy with and without pre-training",
        tables=(3,),
        quantifier=EVERY,
        cases=decide.pre_trained_accuracy,
    ),
    Claim(
        id="pre-training-favors-small-sets",
        place="6.1",
        statement="Pre-training makes the advantage of the smallest training set larger.",
        how="what the smallest size gets of the judge's votes, pre-trained against from scratch",
        unit=f"{_RELATIVE}; positive: more if pre-trained",
        needs="a judge's counts with and without pre-training",
        tables=(3,),
        quantifier=EVERY,
        cases=decide.pre_favors_smallest,
    ),
    Claim(
        id="pre-training-preferred",
        place="6.1",
        statement=(
            "Reconstructions from a pre-trained model are preferred to those from one trained from scratch."
        ),
        how="pre-trained against scratch in pairs, every measure and size",
        unit=f"{_RELATIVE}; positive: pre-trained preferred",
        needs="a judge's counts in pairs",
        tables=(5,),
        quantifier=EVERY,
        cases=decide.pre_wins,
    ),
    Claim(
        id="narrow-bottleneck-hurts",
        place="6.1",
        statement="A smaller bottleneck, which keeps fewer features, degrades the reconstructions.",
        how="2,048 against 512 and 512 against 128 features, every measure and size",
        unit=f"{_RELATIVE}; negative: the narrower is worse",
        needs="a judge's counts by width of the features",
        tables=(6,),
        quantifier=EVERY,
        cases=decide.bottleneck,
    ),
    Claim(
        id="generalization-quality-trade-off",
        place="6.1",
        statement=(
            "The better the target model generalizes, the worse the reconstructions of GAN-based attacks."
        ),
        how="rank correlation of the judge's rate with test accuracy",
        unit="rank correlation; negative: a trade-off",
        needs="test accuracy and a judge's rates of the same models",
        tables=(3,),
        quantifier=EVERY,
        cases=decide.trade_off,
        across={"k": OPPOSES},
    ),
    Claim(
        id="reliable-when-far-apart",
        place="6.1",
        statement=(
            "The metrics are reliable where attacks differ clearly, such as GAN-based ones and MI-Face."
        ),
        how="each GAN attack against MI-Face, every metric and size",
        unit=f"{_RELATIVE}; positive: GAN attack closer",
        needs=_METRICS,
        tables=(2,),
        quantifier=EVERY,
        cases=decide.far_apart,
        elsewhere=_OTHERS,
    ),
    Claim(
        id="metrics-miss-subtle-differences",
        place="6.1",
        statement="Where differences are subtle, the metrics often fail to align with what one perceives.",
        how=(
            "Kendall's correlation over sizes between each metric of a GAN attack and the judge's votes, "
            f"below {decide.WEAK}"
        ),
        unit="rank correlation; positive: the metric agrees with the judge",
        needs="a judge's counts and the same attacks' metrics",
        tables=(2, 3),
        quantifier=MOST,
        cases=decide.metrics_miss_the_judge,
        across={"n": UNCLEAR, "k": UNCLEAR},
    ),
    # --- section 7 -------------------------------------------------------------------------------------
    Claim(
        id="similar-data-moderate-drop",
        place="7",
        statement=(
            "With similar instead of same-distribution auxiliary data, GAN-based attacks lose moderately."
        ),
        how=(
            f"FID with similar against same data: farther, by less than {decide.MODERATE} of the mean of both"
        ),
        unit=f"{_RELATIVE}; negative: a drop",
        needs="FID with similar auxiliary data (Figures 4a and 14 print none)",
        tables=(2,),
        quantifier=EVERY,
        cases=decide.similar_data,
    ),
    Claim(
        id="other-data-can-help",
        place="7",
        statement=(
            "For Inv-Alignment other auxiliary data (CIFAR-100) can do better than data of the same "
            "distribution."
        ),
        how="330.31 against 357.91, both printed in the text, and against Table 19 at the largest size",
        unit="FID; positive: other data closer",
        needs="FID of Inv-Alignment with CIFAR100 as auxiliary data",
        tables=(19,),
        quantifier=SOME,
        cases=decide.other_data_helps,
    ),
    Claim(
        id="trigger-not-exploited",
        place="7",
        statement="Inv-Alignment never shows the trigger of a backdoored model.",
        how=f"trigger score below {decide.SEEN}",
        unit="trigger score",
        needs="a trigger score (Figure 5 is pictures only)",
        tables=(),
        quantifier=EVERY,
        cases=decide.trigger_not_seen,
    ),
    Claim(
        id="white-box-helps-strong-attacks",
        place="7",
        statement="The stronger attacks benefit from white-box access.",
        how="FID of the target itself against a stolen surrogate",
        unit=f"{_RELATIVE}; positive: closer with white-box access",
        needs="FID on surrogates (Figures 4b and 14 print none)",
        tables=(2,),
        quantifier=EVERY,
        cases=decide.white_box_helps,
    ),
    Claim(
        id="gap-widens-with-complexity",
        place="7",
        statement="What white-box access adds is larger on more complex data.",
        how="gain in FID over a stolen surrogate on the more complex less that on the simpler data set",
        unit=f"{_RELATIVE}; positive: more gained on the complex one",
        needs="FID on surrogates of two data sets (Figures 4b and 14 print none)",
        tables=(),
        quantifier=MOST,
        cases=decide.gap_widens,
    ),
    Claim(
        id="deep-inversion-beats-deep-dream",
        place="7",
        statement="DeepInversion, which uses BatchNorm statistics, consistently outperforms DeepDream.",
        how="DeepInversion against DeepDream, every metric and size",
        unit=f"{_RELATIVE}; positive: DeepInversion closer",
        needs=_METRICS,
        tables=(2,),
        quantifier=EVERY,
        cases=decide.deep_inversion_ahead,
        elsewhere=_OTHERS,
        reading="every metric",
        readings=(Reading("FID alone", decide.deep_inversion_ahead_by_frechet),),
        question="Is FID meant?",
    ),
    Claim(
        id="fixed-batch-norm-hurts",
        place="7",
        statement="DeepInversion degrades on a model trained with fixed BatchNorm parameters.",
        how="FID fixed against updated, every size",
        unit="FID; negative: fixed is farther",
        needs="FID with BatchNorm fixed and updated",
        tables=(7,),
        quantifier=EVERY,
        cases=decide.fixed_batch_norm,
    ),
    Claim(
        id="white-box-not-always",
        place="7",
        statement="Not all attacks do better with white-box access.",
        how="FID of the target itself against a stolen surrogate",
        unit=f"{_RELATIVE}; negative: not closer with white-box access",
        needs="FID on surrogates (Figure 14 prints none)",
        tables=(2,),
        quantifier=SOME,
        cases=decide.white_box_does_not_help,
    ),
    Claim(
        id="trigger-reconstructed",
        place="7",
        statement="DeepInversion and Revealer reconstruct the trigger of a backdoored model.",
        how=f"trigger score of at least {decide.SEEN}",
        unit="trigger score",
        needs="a trigger score (Figure 6 is pictures only)",
        tables=(),
        quantifier=EVERY,
        cases=decide.trigger_seen,
    ),
    # --- section 8 -------------------------------------------------------------------------------------
    Claim(
        id="memorization-predicts-leakage",
        place="8",
        statement="Memorization is strongly correlated with reconstruction performance.",
        how=(
            "correlation of the memorization score (of the model trained from scratch) with each judge's "
            f"measure over sizes, at least {decide.STRONG}"
        ),
        unit="correlation; positive: more memorization, more votes",
        needs="memorization and a judge's counts",
        tables=(2, 3),
        quantifier=MOST,
        cases=decide.memorization_and_judge,
        across={"k": OPPOSES},
        reading="Pearson's coefficient",
        readings=(Reading("Spearman's coefficient", decide.memorization_and_judge_by_rank),),
        question="Which coefficient is called strong, and over which rows?",
    ),
    Claim(
        id="transformers-small-sets-leak-more",
        place="8",
        statement=(
            "Transformers trained on smaller data sets are more vulnerable than those trained on larger ones."
        ),
        how="rank correlation with size of each measure, Swin and MAE",
        unit=_TAU,
        needs="a judge's counts or rates on transformers",
        tables=(8, 12),
        quantifier=EVERY,
        cases=decide.judge_falls,
        across={"k": OPPOSES},
    ),
    Claim(
        id="text-falls-with-size",
        place="8",
        statement="In text too, larger training sets lead to poorer reconstructions.",
        how="rank correlation with size of each measure, data set by data set",
        unit=_TAU,
        needs="BLEU, similarity, ROUGE-L",
        tables=(9,),
        quantifier=EVERY,
        cases=decide.text_falls,
        elsewhere=(11,),
    ),
    Claim(
        id="dp-protects",
        place="8",
        statement="Differential privacy reduces the success of reconstruction.",
        how="FID with against without DP, every size",
        unit="FID; negative: farther under DP",
        needs="FID with and without DP",
        tables=(10,),
        quantifier=EVERY,
        cases=decide.dp_protects,
        elsewhere=(16,),
    ),
    Claim(
        id="pruning-protects",
        place="8",
        statement="Pruning reduces the success of reconstruction.",
        how="FID with against without pruning, every size",
        unit="FID; negative: farther if pruned",
        needs="FID with and without pruning",
        tables=(10,),
        quantifier=EVERY,
        cases=decide.pruning_protects,
    ),
    Claim(
        id="pruning-is-cheap",
        place="8",
        statement="Pruning costs typically less than one percent of accuracy.",
        how="accuracy lost by pruning",
        unit="accuracy lost",
        needs="test accuracy with and without pruning",
        tables=(10,),
        quantifier=MOST,
        cases=decide.pruning_is_cheap,
    ),
    Claim(
        id="dp-costs-more-than-pruning",
        place="8",
        statement="DP often costs much more accuracy than pruning.",
        how="accuracy with DP against with pruning, every size",
        unit="accuracy; positive: DP costs more",
        needs="test accuracy with DP and with pruning",
        tables=(10,),
        quantifier=MOST,
        cases=decide.dp_costs_more,
    ),
    Claim(
        id="fine-tuned-more-susceptible",
        place="8",
        statement="Data that a pre-trained model was fine-tuned on is often more susceptible.",
        how="FID pre-trained against from scratch, every size",
        unit="FID; positive: closer if pre-trained",
        needs="FID with and without pre-training",
        tables=(10,),
        quantifier=MOST,
        cases=decide.fine_tuned,
    ),
    # --- appendices ------------------------------------------------------------------------------------
    Claim(
        id="quality-is-not-diversity",
        place="App. D",
        statement="High quality does not mean high coverage.",
        how=(
            "coverage of the attack with the lowest FID below the highest coverage, labeled static "
            "attacks, every size"
        ),
        unit="percentage points below the best",
        needs="FID and coverage of attacks",
        tables=NINE,
        quantifier=SOME,
        cases=decide.closest_does_not_cover_most,
    ),
    Claim(
        id="quantity-leaves-quality",
        place="App. E",
        statement="The number of reconstructions hardly changes their quality.",
        how="most against fewest reconstructions, each metric: less than a tenth",
        unit=_RELATIVE,
        needs="metrics by number of reconstructions (Figure 13 prints none)",
        tables=(),
        quantifier=EVERY,
        cases=decide.quantity_leaves_quality,
    ),
    Claim(
        id="quantity-raises-coverage",
        place="App. E",
        statement="More reconstructions increase coverage.",
        how="coverage of most against fewest reconstructions",
        unit="percentage points; positive: more covered",
        needs="coverage by number of reconstructions (Figure 13 prints none)",
        tables=(),
        quantifier=EVERY,
        cases=decide.quantity_raises_coverage,
    ),
    Claim(
        id="defenses-help-in-most-cases",
        place="App. H",
        statement="MID and DP mitigate reconstruction in most cases.",
        how="FID with against without the defense, every attack and size",
        unit="FID; negative: farther under the defense",
        needs="FID with and without MID or DP",
        tables=(16,),
        quantifier=MOST,
        cases=decide.defenses_raise,
        elsewhere=(10,),
    ),
    Claim(
        id="defenses-are-uneven",
        place="App. H",
        statement="Their protection is not the same in all conditions.",
        how="a case in which FID is lower under the defense",
        unit="FID; positive: closer under the defense",
        needs="FID with and without MID or DP",
        tables=(16,),
        quantifier=SOME,
        cases=decide.defenses_uneven,
        elsewhere=(10,),
    ),
    Claim(
        id="transformers-worst-not-smallest",
        place="App. I",
        statement="For transformers the largest leak is not at the smallest data set.",
        how="the best of the other sizes against the smallest, every measure",
        unit=f"{_RELATIVE}; positive: another size is best",
        needs="a judge's counts or rates on transformers",
        tables=(8, 12),
        quantifier=EVERY,
        cases=decide.worst_not_smallest,
        across={"k": FAVORS},
    ),
)
"""In the order of the paper."""
