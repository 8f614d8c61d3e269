"""The HTTP interface: requests, certificates, the store to read, a console, inference. See :mod:`mbd.serving.app`."""
