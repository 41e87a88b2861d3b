# The image of the connector: one static binary with CA certificates and time zones, without a shell, for a user without
# rights. Its root file system may be read-only; see temp_dir in config.yaml.
#
#   docker build --build-arg VERSION=v1.0.0 -t sluice .
#   docker run --rm --read-only --tmpfs /tmp -v "$PWD/config.yaml:/etc/sluice/config.yaml:ro" sluice

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Empty: the version is that of the commit.
ARG VERSION
RUN CGO_ENABLED=0 go build -mod=readonly -trimpath -tags grpcnotrace \
      -ldflags "-s -w${VERSION:+ -X main.stamped=$VERSION}" -o /image/connector ./cmd/connector
RUN mkdir -p /image/etc/ssl/certs \
 && mkdir -m 1777 /image/tmp \
 && cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ \
 && echo 'sluice:x:65532:65532::/:/' > /image/etc/passwd

FROM scratch
COPY --from=build /image /
USER 65532:65532
EXPOSE 8080
# Kubernetes has probes of its own and ignores this.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/connector", "probe", "live", "--config", "/etc/sluice/config.yaml"]
ENTRYPOINT ["/connector"]
CMD ["run", "--config", "/etc/sluice/config.yaml"]
