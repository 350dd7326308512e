# syntax=docker/dockerfile:1
# The router:        docker build --target router --tag dlx-router:0.2.0.dev0 .
# With PySpark too:  docker build --target pipeline --tag dlx-router-pipeline:0.2.0.dev0 .
# The chart asks for images by the version that it belongs to.
# Two builds with one time for all files (podman build --timestamp) give the same bytes: docs/release.md

# What the router needs, before the router itself: another build of changed code begins behind it.
FROM python:3.12-slim-bookworm AS build
# What builds our own wheel is of constraints.txt too, under the name that each pip knows.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONHASHSEED=0 \
    PIP_CONSTRAINT=/src/constraints.txt PIP_BUILD_CONSTRAINT=/src/constraints.txt
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY dlx_router/__init__.py dlx_router/__init__.py
RUN python -m venv /opt/dlx-router \
    && /opt/dlx-router/bin/pip install --no-compile '.[otel]'

# What runs needs no installer, no extensions of CEL that no policy can name, and one binding of zstd: 70 MB.
# What Python compiled is checked by nobody: by default it has the second in which pip wrote the source.
FROM build AS build-router
COPY dlx_router dlx_router
RUN /opt/dlx-router/bin/pip install --no-compile --no-deps --force-reinstall . \
    && /opt/dlx-router/bin/pip uninstall --yes setuptools pip \
    && rm -r /opt/dlx-router/lib/python3.*/site-packages/cel_expr_python/ext \
        /opt/dlx-router/lib/python3.*/site-packages/zstandard/_cffi.*.so \
    && /opt/dlx-router/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /opt/dlx-router/lib

FROM build AS build-pipeline
RUN /opt/dlx-router/bin/pip install --no-compile '.[spark]'
COPY dlx_router dlx_router
RUN /opt/dlx-router/bin/pip install --no-compile --no-deps --force-reinstall . \
    && /opt/dlx-router/bin/pip uninstall --yes setuptools pip \
    && /opt/dlx-router/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /opt/dlx-router/lib

FROM python:3.12-slim-bookworm AS base
LABEL org.opencontainers.image.title="dlx-router" \
      org.opencontainers.image.description="A dead-letter system for RabbitMQ" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/dlx-router/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DLX_ROUTER_HTTP_HOST=0.0.0.0 \
    DLX_ROUTER_HTTP_PORT=9719 \
    DLX_ROUTER_POLICIES=/policies
# Nothing is written but to /var/lib/dlx-router (the index, if there is one) and /tmp: the root may be read-only.
# (useradd would write down the day.)
RUN echo dlx-router:x:10001:10001::/var/lib/dlx-router:/usr/sbin/nologin >>/etc/passwd \
    && echo dlx-router:x:10001: >>/etc/group \
    && install --directory --owner=10001 --group=10001 /var/lib/dlx-router
USER 10001:10001
WORKDIR /var/lib/dlx-router
EXPOSE 9719
# By the port that is set, and past any proxy that the container was given.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import http.client as h, os; c = h.HTTPConnection('127.0.0.1', int(os.environ['DLX_ROUTER_HTTP_PORT']), timeout=2); c.request('GET', '/livez'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["dlx-router"]
CMD ["run"]

FROM base AS pipeline
USER root
# Java's package links its manual pages into a folder that slim images lack.
RUN mkdir -p /usr/share/man/man1 && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY --from=build-pipeline /opt/dlx-router /opt/dlx-router
USER 10001:10001
HEALTHCHECK NONE
CMD ["pipeline", "--help"]

FROM base AS router
COPY --from=build-router /opt/dlx-router /opt/dlx-router
