"""A host without a network: what it needs is downloaded elsewhere into a folder, and installed from it.

<folder>/offline.json      the Python that the folder is for
<folder>/requirements.txt  what servegrid requires, a line each
<folder>/wheels/           those packages, tritonserver, perf_analyzer and CUDA's runtime
<folder>/packages/         .deb files: libpython, and the libraries of perf_analyzer
"""
