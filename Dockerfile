# For builds without a registry, the Makefile passes "scratch" and mounts the toolchain of this
# machine. So the instructions use full paths and no shell.
ARG GO_IMAGE=docker.io/library/golang:1.26.8

FROM --platform=$BUILDPLATFORM $GO_IMAGE AS build
# The index of packages knows files by their sizes and times, and here all files have the same time.
ENV GOPATH=/go GOCACHE=/go/cache CGO_ENABLED=0 GODEBUG=goindex=0
WORKDIR /src
ARG TARGETOS
ARG TARGETARCH
ENV GOOS=$TARGETOS GOARCH=$TARGETARCH

# The labels are those of OCI images, and those that the checks of a certification ask for.
FROM scratch AS labeled
LABEL org.opencontainers.image.vendor=kkloud vendor=kkloud \
      maintainer="Echo operator maintainers" \
      release=1
USER 65532:65532

FROM labeled AS own
ARG VERSION
LABEL org.opencontainers.image.version=$VERSION version=$VERSION \
      org.opencontainers.image.source=https://github.com/kkloud-io/echo-operator \
      org.opencontainers.image.licenses=Apache-2.0
COPY LICENSE /licenses/LICENSE

FROM build AS source
COPY go.mod go.sum ./
COPY api api
COPY cmd cmd
COPY internal internal

# The image of the scorecard (--target scorecard): the tests of this repository.
FROM source AS build-scorecard
RUN ["/usr/local/go/bin/go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", "/src/scorecard", "./cmd/scorecard"]

FROM own AS scorecard
LABEL org.opencontainers.image.title="Echo Operator scorecard" name="echo-operator-scorecard" summary="Echo Operator scorecard" \
      org.opencontainers.image.description="Tests the Echo operator and its bundle for operator-sdk scorecard" \
      description="Tests the Echo operator and its bundle for operator-sdk scorecard"
COPY --from=build-scorecard /src/scorecard /
ENV PATH=/
ENTRYPOINT ["/scorecard"]

FROM source AS build-http-echo
RUN ["/usr/local/go/bin/go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", "/src/http-echo", "./cmd/http-echo"]

# The default server of an Echo (--target http-echo). Without the version of the operator, its digest changes only with
# the server.
FROM labeled AS http-echo
LABEL org.opencontainers.image.title="http-echo" name="http-echo" summary="http-echo" \
      org.opencontainers.image.description="Responds to every HTTP request with the same message" \
      description="Responds to every HTTP request with the same message" \
      org.opencontainers.image.version=1.0.0 version=1.0.0 \
      org.opencontainers.image.source=https://github.com/kkloud-io/echo-operator \
      org.opencontainers.image.licenses=Apache-2.0
COPY LICENSE /licenses/LICENSE
COPY --from=build-http-echo /src/http-echo /http-echo
ENTRYPOINT ["/http-echo"]

FROM source AS build-verifier
RUN ["/usr/local/go/bin/go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", "/src/verifier", "./cmd/verifier"]

# The verifier of an Echo (--target verifier).
FROM own AS verifier
LABEL org.opencontainers.image.title="Echo Operator verifier" name="echo-operator-verifier" summary="Echo Operator verifier" \
      org.opencontainers.image.description="Requests the response of an Echo and compares it with the declared one" \
      description="Requests the response of an Echo and compares it with the declared one"
COPY --from=build-verifier /src/verifier /verifier
ENTRYPOINT ["/verifier"]

FROM source AS build-manager
ARG VERSION
# Without a shell, only ENV expands variables.
ENV GOFLAGS="'-ldflags=-s -w -X main.version=$VERSION'"
RUN ["/usr/local/go/bin/go", "build", "-trimpath", "-buildvcs=false", "-o", "/src/manager", "./cmd"]

FROM own AS manager
LABEL org.opencontainers.image.title="Echo Operator" name="echo-operator" summary="Echo Operator" \
      org.opencontainers.image.description="Keeps an HTTP endpoint for each Echo that responds with its message" \
      description="Keeps an HTTP endpoint for each Echo that responds with its message"
COPY --from=build-manager /src/manager /manager
ENTRYPOINT ["/manager"]
