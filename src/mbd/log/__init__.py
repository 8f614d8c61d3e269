"""The transparency log: an append-only Merkle tree (RFC 6962) as plain objects in a store (C2SP tlog-tiles).

    log/checkpoint                 the signed head: origin, size, root hash                  (C2SP tlog-checkpoint)
    log/tile/L/NNN[.p/W]           hashes, 256 to a tile                                     (C2SP tlog-tiles)
    log/tile/entries/NNN[.p/W]     the leaves: SHA-256 of each certificate's envelope
    log/claims/N                   who comes at place N: decides the order, once and for all
    log/index/SHA256               the place of a leaf
    log/checkpoints/SIZE           every head that has been superseded

The first three are all that a reader needs. Write with :func:`~mbd.log.append.append_leaf`, read with
:class:`~mbd.log.reader.Log`; a bundle carries an :class:`~mbd.log.checkpoint.Inclusion`.
"""
