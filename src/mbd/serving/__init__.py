"""The HTTP interface: requests in, certificates out, the store to read, a console. See :mod:`mbd.serving.app`."""
