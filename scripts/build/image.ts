/**
 * `npm run image`: this procwire as a container image, `release/procwire-image.tar` (an OCI archive).
 *
 * It starts from an empty image: a shell, the usual small programs and bubblewrap come from Debian's packages, procwire
 * and its Node from this clone. It requires apt-get, dpkg-deb and tar, but no builder and no daemon. With
 * buildah it also tests the image.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { SelfPackage } from "../../src/host/package/self-package.ts";
import { buildIfStale, RELEASE } from "./pack-all.ts";

const IMAGE = join(RELEASE, "procwire-image.tar");

/** All packages of the image. apt resolves no dependencies here; the test run of the image checks the list. */
const PACKAGES = [
  // The libraries that Node links against.
  ...["libc6", "libstdc++6", "libgcc-s1"],
  // A shell and the usual utilities, with their libraries.
  ...["base-files", "bash", "dash", "coreutils", "findutils", "grep", "sed", "mawk", "tar", "gzip"],
  ...["libtinfo6", "libacl1", "libattr1", "libgmp10", "libselinux1", "libpcre2-8-0"],
  // The sandbox, if the container runtime allows it.
  ...["bubblewrap", "libcap2"],
];

const USER = 1000;
const HOME = "home/procwire";
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/** Options of tar that omit times and names, so that the same packages and sources give the same bytes. */
const REPRODUCIBLE = ["--sort=name", "--mtime=@0", "--numeric-owner", "--format=gnu"];

function image(): void {
  for (const tool of ["apt-get", "dpkg-deb", "tar"])
    if (!isInstalled(tool)) throw new Error(`npm run image requires ${tool}`);
  buildIfStale();
  const work = mkdtempSync(join(tmpdir(), "procwire-image-"));
  try {
    const root = join(work, "root");
    fillFromDebian(root, join(work, "packages"));
    addProcwire(root);
    writeArchive(work, createLayer(root, join(work, "layer.tar")));
  } finally {
    rmSync(work, { recursive: true });
  }
  console.log(`wrote ${IMAGE}`);
  if (isInstalled("buildah")) testImage();
  else console.log("NOT TESTED: buildah is not installed (apt-get install buildah)");
}

function fillFromDebian(root: string, packages: string): void {
  for (const directory of [packages, join(root, "usr")]) mkdirSync(directory, { recursive: true });
  for (const name of ["bin", "sbin", "lib", "lib64"]) {
    mkdirSync(join(root, "usr", name));
    symlinkSync(join("usr", name), join(root, name));
  }
  const apt = (...args: string[]) =>
    execFileSync("apt-get", ["-qq", ...args], { cwd: packages, stdio: ["ignore", "ignore", "inherit"] });
  // apt would warn that its own user cannot write to this directory.
  const download = () => apt("download", "-o", "APT::Sandbox::User=root", ...PACKAGES);
  try {
    download();
  } catch {
    // apt has no package list yet, or an outdated one.
    apt("update");
    download();
  }
  for (const name of readdirSync(packages)) {
    const files = execFileSync("dpkg-deb", ["--fsys-tarfile", join(packages, name)], { maxBuffer: 2 ** 30 });
    execFileSync("tar", ["-x", "--keep-directory-symlink", "--no-same-owner", "-C", root], { input: files });
  }
  for (const name of ["doc", "man", "locale", "info", "lintian"])
    rmSync(join(root, "usr/share", name), { recursive: true, force: true });
}

function addProcwire(root: string): void {
  const home = join(root, "opt/procwire");
  for (const directory of [home, join(root, HOME), join(root, "tmp"), join(root, "etc")])
    mkdirSync(directory, { recursive: true });
  using copy = new SelfPackage({ node: process.execPath });
  const [tar = "", ...args] = copy.tarArgv;
  const copied = execFileSync(tar, args, { maxBuffer: 2 ** 30 });
  execFileSync("tar", ["-x", "--no-same-owner", "-C", home], { input: copied });
  // The launcher runs the bundle, which matches the sources, if there are no sources.
  rmSync(join(home, "src"), { recursive: true });
  symlinkSync("/opt/procwire/bin/procwire", join(root, "usr/bin/procwire"));
  const users = [`root:x:0:0:root:/root:/bin/bash`, `procwire:x:${USER}:${USER}::/${HOME}:/bin/bash`];
  writeFileSync(join(root, "etc/passwd"), `${users.join("\n")}\n`);
  writeFileSync(join(root, "etc/group"), `root:x:0:\nprocwire:x:${USER}:\n`);
  chmodSync(join(root, "tmp"), 0o1777);
}

/** Root owns all files except the user's home, and every user may read them, regardless of the modes in this clone. */
function createLayer(root: string, layer: string): Buffer {
  const owned = (uid: number) => [`--owner=${uid}`, `--group=${uid}`];
  execFileSync("tar", [
    "-cf",
    layer,
    "-C",
    root,
    ...REPRODUCIBLE,
    ...owned(0),
    "--mode=a+rX",
    `--exclude=./${HOME}`,
    ".",
  ]);
  execFileSync("tar", ["-rf", layer, "-C", root, ...REPRODUCIBLE, ...owned(USER), `./${HOME}`]);
  return readFileSync(layer);
}

/** Writes the format of https://github.com/opencontainers/image-spec: blobs by digest, a manifest and an index. */
function writeArchive(work: string, layer: Buffer): void {
  const directory = join(work, "oci");
  mkdirSync(join(directory, "blobs/sha256"), { recursive: true });
  const blob = (type: string, content: Buffer) => {
    const digest = sha256(content);
    writeFileSync(join(directory, "blobs/sha256", digest), content);
    return {
      mediaType: `application/vnd.oci.image.${type}`,
      digest: `sha256:${digest}`,
      size: content.length,
    };
  };
  const config = {
    architecture: process.arch === "x64" ? "amd64" : process.arch,
    os: "linux",
    config: {
      User: `${USER}:${USER}`,
      Env: [`PATH=${PATH}`, `HOME=/${HOME}`, "LANG=C.UTF-8"],
      Entrypoint: ["/usr/bin/procwire"],
      Cmd: ["--help"],
      WorkingDir: `/${HOME}`,
      ExposedPorts: { "7070/tcp": {} },
    },
    rootfs: { type: "layers", diff_ids: [`sha256:${sha256(layer)}`] },
  };
  const manifest = blob(
    "manifest.v1+json",
    json({
      schemaVersion: 2,
      mediaType: "application/vnd.oci.image.manifest.v1+json",
      config: blob("config.v1+json", json(config)),
      layers: [blob("layer.v1.tar+gzip", gzipSync(layer))],
    }),
  );
  const named = { ...manifest, annotations: { "org.opencontainers.image.ref.name": "latest" } };
  writeFileSync(join(directory, "index.json"), json({ schemaVersion: 2, manifests: [named] }));
  writeFileSync(join(directory, "oci-layout"), json({ imageLayoutVersion: "1.0.0" }));
  mkdirSync(RELEASE, { recursive: true });
  execFileSync("tar", ["-cf", IMAGE, "-C", directory, ...REPRODUCIBLE, "--owner=0", "--group=0", "."]);
}

/** Runs a terminal in the image as its user, with a temporary image store. */
function testImage(): void {
  const store = mkdtempSync(join(tmpdir(), "procwire-images-"));
  const buildah = (...args: string[]) =>
    execFileSync(
      "buildah",
      ["--storage-driver=vfs", "--root", join(store, "root"), "--runroot", join(store, "run"), ...args],
      { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] },
    ).trim();
  try {
    const container = buildah("from", `oci-archive:${resolve(IMAGE)}`);
    const script = "test -t 1 && id -u && sed --version | head -n 1";
    const output = buildah(
      "run",
      "--isolation=chroot",
      container,
      "--",
      "procwire",
      "run",
      "-t",
      "--",
      "sh",
      "-c",
      script,
    );
    if (!output.startsWith(`${USER}\r\nsed`))
      throw new Error(`unexpected output of a terminal in the image: ${output}`);
    buildah("rm", container);
  } finally {
    rmSync(store, { recursive: true });
  }
  console.log("tested: a terminal runs in the image as its user");
}

function isInstalled(program: string): boolean {
  return spawnSync(program, ["--version"], { stdio: "ignore" }).error === undefined;
}

const json = (value: unknown) => Buffer.from(JSON.stringify(value));
const sha256 = (content: Buffer) => createHash("sha256").update(content).digest("hex");

if (process.argv[1] === fileURLToPath(import.meta.url)) image();
