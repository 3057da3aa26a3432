"""The product on a real Kubernetes node, with real pods; nothing in here is part of the product.

``e2e.node`` is the node, ``e2e.images`` what its pods run, and the rest are the tests and their fixtures.
"""
