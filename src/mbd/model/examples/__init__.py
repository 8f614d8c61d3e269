"""Modules under the contract of :mod:`mbd.model.contract`, to copy from; each works as it is as `model.backbone`."""
