# A llama-server image like any user's: `llama-server` on PATH, no shell entry point, no root. The server in it is the
# real llama.cpp of the engine extra, behind llama-server's own command line (slotune.llama.engine).
ARG BASE
FROM ${BASE} AS build
WORKDIR /build
COPY requirements/engine.txt ./
COPY wheelhouse ./wheelhouse
# Only the engine: everything else in that lock file is the product's.
RUN set -eu; \
    sed -n '/^xllamacpp==/,/[^\\]$/p' engine.txt > only-engine.txt; \
    python3 -m venv tools; \
    python3 -m venv --without-pip /opt/llama; \
    tools/bin/pip --python /opt/llama/bin/python install --quiet --no-index --find-links wheelhouse \
        --require-hashes --no-deps -r only-engine.txt

FROM ${BASE}
COPY --from=build /opt/llama /opt/llama
COPY llama-server /usr/local/bin/llama-server
COPY operator/slotune/__init__.py /opt/llama/source/slotune/
COPY operator/slotune/llama/__init__.py operator/slotune/llama/engine.py operator/slotune/llama/engine_flags.py /opt/llama/source/slotune/llama/
ENV PYTHONPATH=/opt/llama/source PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
RUN llama-server --version
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["llama-server"]
