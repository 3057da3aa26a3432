"""Whether a quantized model still answers like its reference: what is asked, what is kept, how far the two lie apart.

Here belong: limits and settings, the recorded reference and its form on the wire, the teacher that walks a server
through it over HTTP, and the numbers of the comparison. Not here: the verdict on them (``verdict.quality_gate``), and
which pair of weights and KV cache is measured when (the search). Only ``teacher`` and ``server`` talk to a server.
"""
