/**
 * `npm run setup:debian`: installs the Debian packages that the suites beyond `npm test` need, or the packages named as
 * arguments. Does nothing and prints nothing if they are installed. Otherwise it prints what it installs. If it cannot
 * install (no apt-get, not root, no network), it prints the reason and exits 1. `npm test` never calls it: without a
 * package, the tests that need it are skipped with a warning, and fail in CI.
 */
import { execFileSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/**
 * The packages for all suites: sandbox, pager, certificates, injected faults, a real terminal, a browser, another
 * CPU architecture.
 */
const DEFAULT_PACKAGES = [
  ...["bubblewrap", "chromium", "curl", "less", "openssh-server", "openssl", "rsync", "strace", "tmux"],
  // Programs that send terminal queries.
  ...["vim", "vttest"],
  // Checks the format of C and C++.
  "clang-format",
  // Runs the service unit.
  "systemd",
  // Plays recordings of version 2.
  "asciinema",
  // Checks the metrics.
  "prometheus",
  // The reference of `npm run bench:network`.
  "tinyproxy-bin",
  // Containers for `docker://`, without a Docker daemon.
  ...["docker.io", "podman", "crun"],
  // Shells with completion, and the reader of the manual page.
  ...["fish", "zsh", "groff-base"],
  // An arm64 Node in an emulator, with the libraries it is linked against.
  ...["qemu-user-static", "libc6-arm64-cross", "libstdc++6-arm64-cross", "libatomic1-arm64-cross"],
];

/** Programs whose name differs from their package. */
const PROGRAM_NAMES: Readonly<Record<string, string>> = {
  bubblewrap: "bwrap",
  "docker.io": "docker",
  "groff-base": "groff",
  prometheus: "promtool",
  "qemu-user-static": "qemu-aarch64-static",
  "tinyproxy-bin": "tinyproxy",
};

/** Timeout of apt, so that an unresponsive mirror does not hang a test run. */
const APT_TIMEOUT_MS = 10 * 60_000;

export function missingPackages(packages: readonly string[]): string[] {
  return packages.filter((name) => !hasProgram(PROGRAM_NAMES[name] ?? name) && !isInstalled(name));
}

export function installPackages(packages: readonly string[]): void {
  if (!hasProgram("apt-get")) throw new Error("this system has no apt-get");
  if (process.getuid?.() !== 0) throw new Error("installing packages requires root");
  apt(["update", "-qq"]);
  apt(["install", "-y", "-qq", "--no-install-recommends", ...packages]);
}

function apt(args: string[]): void {
  execFileSync("apt-get", args, {
    stdio: ["ignore", "ignore", "inherit"],
    timeout: APT_TIMEOUT_MS,
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
  });
}

function isInstalled(name: string): boolean {
  try {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a field of dpkg-query, not of JavaScript
    const format = "-f=${db:Status-Status}";
    return execFileSync("dpkg-query", ["-W", format, name], { stdio: "pipe", encoding: "utf8" }) === "installed";
  } catch {
    return false;
  }
}

function hasProgram(name: string): boolean {
  return (process.env.PATH ?? "").split(delimiter).some((directory) => {
    try {
      accessSync(join(directory, name), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

if (import.meta.main) {
  const requested = process.argv.slice(2);
  const missing = missingPackages(requested.length > 0 ? requested : DEFAULT_PACKAGES);
  if (missing.length > 0) {
    console.error(`setup-debian: installing ${missing.join(", ")}`);
    try {
      installPackages(missing);
      console.error(`setup-debian: installed ${missing.join(", ")}`);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      console.error(`setup-debian: could not install ${missing.join(", ")}: ${reason}`);
      process.exitCode = 1;
    }
  }
}
