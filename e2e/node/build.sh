#!/bin/sh
# Build the control plane, kubelet, kube-proxy, kubectl, etcd and helm from their Go modules, once per machine.
# Usage: build.sh FOLDER; prints the folder that holds the binaries. The folder's name carries the hash of
# the go.mod and go.sum files, so another version never meets an old binary; a build that was cut short
# leaves no such folder. About 15 minutes on two cores with a cold Go cache, nothing afterwards.
# Exit code 2 when something has to be built and there is no Go that can.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
key=$(cat "$here"/*/go.mod "$here"/*/go.sum "$0" | sha256sum | cut -c1-16)
done="$1/$key"
if [ ! -d "$done" ]; then
    go=$(cd / && GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || true); go=${go#go1.}; go=${go%%[!0-9]*}
    [ "${go:-0}" -ge 25 ] || { echo "build.sh: there is no Go 1.25 or newer on PATH" >&2; exit 2; }
    kubernetes=$(cd "$here/kubernetes" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
    major=${kubernetes#v}; major=${major%%.*}; minor=${kubernetes#v*.}; minor=${minor%%.*}
    version=k8s.io/component-base/version
    mkdir -p "$1"
    part=$(mktemp -d "$1/part.XXXXXX")
    trap 'rm -rf "$part"' EXIT
    export CGO_ENABLED=0
    build() { (cd "$here/$1" && echo "build.sh: $1" >&2 && go build -trimpath -ldflags "$2" -o "$part/" tool); }
    build etcd "-s -w"
    mv "$part/v3" "$part/etcd" 2>/dev/null || mv "$part/server" "$part/etcd"
    build kubernetes "-s -w -X $version.gitVersion=$kubernetes -X $version.gitMajor=$major -X $version.gitMinor=$minor"
    build helm "-s -w"
    # Two runs may build at once; the first to finish wins and the other throws its own away.
    chmod 755 "$part"
    mv -T "$part" "$done" 2>/dev/null || [ -d "$done" ]
fi
echo "$done"
