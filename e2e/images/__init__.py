"""The images that pods of the tests run, built from this checkout with buildah and kept in the cache folder.

Nothing is pulled: the base comes from Debian's packages, everything of Python from the lock files. What is built here
is the product's own Dockerfile, and a llama-server image of which the product must believe that it is any user's.
"""
