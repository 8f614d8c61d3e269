"""Object stores behind one protocol: a local folder or S3. Start at :func:`mbd.storage.open_store`."""
