# A program with PyTorch and Catchment, for `catchment manifests --program`. The build's context is the directory
# with the program, into which the wheel (deploy/wheel.sh) is copied:
#
#   docker build --tag registry.example/train:1 -f program.Dockerfile .
#
# Any image with Python 3.8 or newer and what the program needs is a base.
ARG BASE=docker.io/pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime
FROM ${BASE}

COPY catchment-*.whl /tmp/
# The manifests start the scripts in /opt/catchment. Newer images let pip install beside Debian's packages only
# if it is told to.
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir /tmp/catchment-*.whl && rm /tmp/catchment-*.whl && \
    ln -s "$(python3 -c 'import catchment; print(catchment.__path__[0])')/_bundle" /opt/catchment

# Pods run as this user. Mount data at /data; Kubernetes mounts results at /out.
COPY . /work/
ENV CATCHMENT_DATA=/data
USER 10001:10001
WORKDIR /work
