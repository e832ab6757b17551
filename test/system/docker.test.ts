import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { PROCWIRE, scratchDirectory } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const has = (name: string) => spawnSync(name, ["--version"]).status === 0;
const isPossible = process.getuid?.() === 0 && ["docker", "podman", "crun"].every(has);

/**
 * Docker's CLI on podman's daemon, with a container that holds the programs of this machine. The test runs in a
 * separate mount namespace with cgroups of version 2 only, because crun supports no others.
 */
const SCRIPT = `
umount /sys/fs/cgroup/unified 2>/dev/null; umount -l /sys/fs/cgroup 2>/dev/null
mount -t cgroup2 none /sys/fs/cgroup || exit 90
podman="podman --root $FOLDER/storage --runroot $FOLDER/run --cgroup-manager cgroupfs"
trap '$podman rm -f -t 0 "$NAME" >/dev/null 2>&1; kill $service 2>/dev/null; umount -l "$FOLDER/storage/overlay" 2>/dev/null' EXIT
$podman run -d --name "$NAME" --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 --cgroups=disabled --network=none \\
  -v /usr:/usr:ro --rootfs "$FOLDER/root" sleep 600 >/dev/null || exit 90
$podman system service --time=0 "unix://$FOLDER/docker.sock" & service=$!
while ! [ -S "$FOLDER/docker.sock" ]; do kill -0 $service || exit 90; sleep 0.1; done
export DOCKER_HOST="unix://$FOLDER/docker.sock" PROCWIRE_CONNECT="docker://$NAME"
"$PROCWIRE" run --install --yes -- sh -c 'cd && ls -d .local/share/procwire; exit 3'; echo "exit code $?"
echo typed | "$PROCWIRE" run -- tr a-z A-Z
"$PROCWIRE" run --tty -- sh -c 'test -t 0 && echo a terminal' | tr -d '\\r'
"$PROCWIRE" cp "$FOLDER/file" :/tmp/there && docker exec "$NAME" cat /tmp/there
"$PROCWIRE" run --connect docker://no-such-container -- true; echo "exit code $?"
`;

describe("docker://", {
  timeout: 600_000,
  skip: skipUnless(isPossible, "docker:// needs root and the packages docker.io, podman and crun"),
}, () => {
  test("installs procwire in a container of a real daemon, runs a command and a terminal there, and copies a file", (t) => {
    using scratch = scratchDirectory();
    const root = join(scratch.path, "root");
    for (const name of ["usr", "tmp", "proc", "dev", "sys", "etc", "run", "root"])
      mkdirSync(join(root, name), { recursive: true });
    for (const name of ["bin", "lib", "lib64"]) symlinkSync(`usr/${name}`, join(root, name));
    writeFileSync(join(root, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n");
    writeFileSync(join(scratch.path, "file"), "copied\n");
    const { status, stdout, stderr } = spawnSync("unshare", ["--mount", "bash", "-c", SCRIPT], {
      encoding: "utf8",
      env: { ...process.env, FOLDER: scratch.path, NAME: `procwire-test-${process.pid}`, PROCWIRE },
    });
    const refusal = skipUnless(status !== 90, `this host runs no container: ${stderr.trim()}`);
    if (refusal) return t.skip(refusal);
    assert.equal(stdout, ".local/share/procwire\nexit code 3\nTYPED\na terminal\ncopied\nexit code 125\n", stderr);
    assert.match(stderr, /no-such-container/);
  });
});
