# syntax=docker/dockerfile:1
# The router:        docker build --target router --tag dlx-router .
# With PySpark too:  docker build --target pipeline --tag dlx-router-pipeline .

FROM python:3.12-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY dlx_router dlx_router
RUN python -m venv /opt/dlx-router \
    && /opt/dlx-router/bin/pip install --constraint constraints.txt '.[otel]'

FROM build AS build-pipeline
RUN /opt/dlx-router/bin/pip install --constraint constraints.txt '.[spark]'

FROM python:3.12-slim-bookworm AS base
LABEL org.opencontainers.image.title="dlx-router" \
      org.opencontainers.image.description="A dead-letter system for RabbitMQ" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/dlx-router/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DLX_ROUTER_HTTP_HOST=0.0.0.0 \
    DLX_ROUTER_POLICIES=/policies
# Nothing is written but to /var/lib/dlx-router (the index, if there is one) and /tmp: the root may be read-only.
RUN useradd --system --uid 10001 --no-create-home --home-dir /var/lib/dlx-router dlx-router \
    && install --directory --owner=10001 --group=10001 /var/lib/dlx-router
USER 10001:10001
WORKDIR /var/lib/dlx-router
EXPOSE 9719
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9719/livez', timeout=2)"]
ENTRYPOINT ["dlx-router"]
CMD ["run"]

FROM base AS pipeline
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-pipeline /opt/dlx-router /opt/dlx-router
USER 10001:10001
HEALTHCHECK NONE
CMD ["pipeline", "--help"]

FROM base AS router
COPY --from=build /opt/dlx-router /opt/dlx-router
