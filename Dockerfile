# Flowcast in a container: `docker build -t flowcast:local .`; docker-compose.yml has the other containers that it needs.
# The version is repeated here for the label; a test compares it with pyproject.toml.

FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/flowcast
WORKDIR /build
# Packages come before the code, because they change less often.
COPY requirements/runtime.txt requirements/cluster.txt requirements/s3.txt requirements/
RUN /opt/flowcast/bin/pip install --requirement requirements/runtime.txt \
    --requirement requirements/cluster.txt --requirement requirements/s3.txt
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY migrations migrations
COPY model model
# A running service needs neither pip nor the tests of libraries.
RUN /opt/flowcast/bin/pip install --no-deps . \
 && /opt/flowcast/bin/pip uninstall --yes --quiet pip setuptools \
 && find /opt/flowcast/lib -type d -name tests -prune -exec rm -rf {} +

FROM python:3.11-slim
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Flowcast" \
      org.opencontainers.image.description="Short-term traffic-flow forecasts for every road link of a city" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# A number, not a name, so that Kubernetes can check that it is not root. A new volume gets the owner of the folder.
RUN mkdir -p /var/lib/flowcast/models /var/lib/flowcast/secrets /var/lib/flowcast/secrets-of/service \
      /var/lib/flowcast/secrets-of/database /var/lib/flowcast/secrets-of/grafana && chown -R 10001:10001 /var/lib/flowcast
COPY --from=build /opt/flowcast /opt/flowcast
ENV PATH=/opt/flowcast/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    FLOWCAST_MODEL_STORE=/var/lib/flowcast/models \
    FLOWCAST_MODEL_CACHE=/var/lib/flowcast/models/.cache \
    FLOWCAST_BUILD_REVISION=${REVISION}
USER 10001:10001
WORKDIR /var/lib/flowcast
VOLUME /var/lib/flowcast/models
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/livez', timeout=4)"]
ENTRYPOINT ["flowcast"]
CMD ["serve", "--host", "0.0.0.0"]
