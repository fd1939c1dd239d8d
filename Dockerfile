# syntax=docker/dockerfile:1
FROM python:3.11-slim AS build
ENV UV_PROJECT_ENVIRONMENT=/opt/hlas/.venv UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
RUN pip install --no-cache-dir uv==0.13.7
WORKDIR /build
# Dependencies first: their layer is cached until the lock file changes.
COPY pyproject.toml uv.lock hatch_build.py README.md LICENSE ./
RUN uv sync --frozen --no-dev --no-install-project --extra otel --extra semantic
COPY src src
RUN uv sync --frozen --no-dev --no-editable --extra otel --extra semantic

FROM python:3.11-slim
# A user with a name, which initdb of the embedded database requires.
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin hlas \
    && install -d -o hlas -g hlas -m 0700 /data
COPY --from=build /opt/hlas/.venv /opt/hlas/.venv
ENV PATH=/opt/hlas/.venv/bin:$PATH DATA_DIR=/data LOG_FORMAT=json PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER hlas
WORKDIR /data
# Unused with DATABASE_URL. The rest of the file system can be read-only.
VOLUME /data
EXPOSE 8000
# Requests in progress finish, and the embedded database is stopped.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=2)"]
ENTRYPOINT ["hlas"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
