"""Measurements that need models and metrics together and are no attack on one target.

Each file has a specification (a ``Spec``), as ``cells.Cell`` is one for attacks, and the functions that make
its artifacts; ``study`` plans and runs them, ``results`` and the chapters read them.
"""
