"""The trace, the open-loop client and what one run measured. Nothing here judges a candidate.

Here belong: traffic (``demand``, ``prompts``, ``recorded``, ``trace``), sending it (``client``, ``shards``,
``probe``), and whether the measurement itself was sound (``gates``). Not here: what is owed, what a
configuration is, how a server is started.
"""
