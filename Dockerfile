# slotune's image: the operator, the load client of trials and, with the extra engine, a llama.cpp server.
#
#     docker build -t slotune .                                      the operator and the load client
#     docker build -t slotune-engine --build-arg EXTRAS=operator,engine .
#
# BASE is any image with Python 3.11 or newer and its venv module; both stages use it, since the environment refers to
# the interpreter by its path. EXTRAS chooses lock files below requirements/. Wheels in wheelhouse/ are used instead of
# an index when there are any, so that a build needs no network (docs/install.md).
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
# Another index than pip's own, when one is given; it stays in this stage.
ARG PIP_INDEX_URL
ARG EXTRAS=operator
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ONLY_BINARY=:all: PIP_COMPILE=no PYTHONDONTWRITEBYTECODE=1
WORKDIR /build
COPY requirements ./requirements
COPY wheelhouse ./wheelhouse
# pip and the build backend live in an environment of their own, and only wheels reach the one that is shipped.
RUN set -eu; \
    if ls wheelhouse/*.whl >/dev/null 2>&1; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/build/wheelhouse; fi; \
    locks="-r requirements/runtime.txt"; \
    for extra in $(echo "$EXTRAS" | tr , ' '); do locks="$locks -r requirements/$extra.txt"; done; \
    python3 -m venv backend; \
    python3 -m venv --without-pip /opt/slotune; \
    backend/bin/pip install --quiet --require-hashes --no-deps -r requirements/build.txt; \
    backend/bin/pip --python /opt/slotune/bin/python install --quiet --require-hashes --no-deps $locks
# Nothing imports the tests of libraries, and nobody calls their commands.
RUN find /opt/slotune/lib -type d -name tests -prune -exec rm -rf {} +; \
    find /opt/slotune/bin -type f ! -name 'python*' -delete
COPY pyproject.toml README.md LICENSE ./
COPY operator ./operator
COPY tools/compile_imported.py ./
RUN set -eu; \
    backend/bin/pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir dist .; \
    backend/bin/pip --python /opt/slotune/bin/python install --quiet --no-index --no-deps dist/slotune-*.whl; \
    /opt/slotune/bin/python compile_imported.py

FROM ${BASE}
ARG EXTRAS=operator
# llama.cpp computes with the system's libgomp. A base that has it needs no network here.
RUN set -eu; \
    case ",$EXTRAS," in *,engine,*) ;; *) exit 0 ;; esac; \
    if ! ldconfig -p | grep -q 'libgomp\.so\.1'; then \
        apt-get update -q; \
        apt-get install -y -q --no-install-recommends libgomp1; \
        rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=build /opt/slotune /opt/slotune
COPY LICENSE /usr/share/doc/slotune/LICENSE
ENV PATH=/opt/slotune/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
# A build that cannot start is no image.
RUN slotune --version
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="slotune" \
      org.opencontainers.image.description="Finds the cheapest llama.cpp configuration that was measured to keep a latency promise" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# A number and no name, so that runAsNonRoot can be checked without reading the image's passwd.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["slotune"]
