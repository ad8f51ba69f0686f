# Written when the wheel is made.

# Version of the UCX that the package was built with and carries; the same on all machines of a
# cluster.
UCX_VERSION: str
