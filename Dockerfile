# `grpo` in an image. It was never built: there was no Docker daemon where it was written. hadolint finds nothing in it; wheels were
# built from what .dockerignore lets in, and such wheels installed and used in a clean environment. The lines of Debian's packages
# and of the user were not run.
#
#   docker build -t grpo --build-arg TORCH_INDEX=URL .      URL: PyTorch's index of builds for CPUs
#   docker build -t grpo .                                  the index's torch: on x86-64 several GB with CUDA, runs on CPUs as well
#   docker run --rm --init -v grpo-cache:/cache -v "$PWD":/work grpo train recipe.yaml          `--gpus all` where there are GPUs
#
# It runs as user 1000, for whom a mounted folder must be writable; `--user "$(id -u):$(id -g)"` makes it yours. /cache keeps models,
# data sets and compiled kernels between containers. `--init` passes Ctrl-C and SIGTERM on and collects what ended. Programs of
# models need a sandbox within the container: `docker run --rm grpo doctor` says which there is.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS wheels
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build==1.6.1 \
 && python -m build --wheel --outdir /dist . \
 && python -m build --wheel --outdir /dist verifiers

FROM python:${PYTHON}-slim
ARG TORCH_INDEX=""
# Triton compiles the start of each kernel with a C compiler; Debian keeps one version of it a release.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
COPY constraints.txt /wheels/
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -c /wheels/constraints.txt torch
COPY --from=wheels /dist/*.whl /wheels/
RUN pip install --no-cache-dir -c /wheels/constraints.txt /wheels/*.whl
RUN useradd --uid 1000 --create-home grpo \
 && mkdir -p /cache /work \
 && chown grpo /work \
 && chmod 1777 /cache
# A user that the image does not know has neither a name nor a home: torch asks for the one, libraries write into the other.
ENV HOME=/cache USER=grpo GRPO_CACHE=/cache/grpo HF_HOME=/cache/huggingface XDG_CACHE_HOME=/cache PYTHONUNBUFFERED=1
USER 1000
WORKDIR /work
RUN grpo --version
VOLUME /cache
ENTRYPOINT ["grpo"]
CMD ["--help"]
