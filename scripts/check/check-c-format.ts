import { execFileSync, spawnSync } from "node:child_process";

/**
 * Checks that C and C++ are formatted as `.clang-format` says. Versions 14 (Debian 12) to 22 format these files
 * identically. Without clang-format the check is skipped with a warning; in CI that is an error.
 */
export function checkCFormat(): string | null {
  const files = execFileSync("git", ["ls-files", "*.c", "*.cc", "*.h", "*.hpp"], { encoding: "utf8" })
    .trim()
    .split("\n");
  const ran = spawnSync("clang-format", ["--dry-run", "-Werror", ...files], { encoding: "utf8" });
  if (ran.status === 0) return null;
  if (!ran.error) return `${ran.stderr}\`clang-format -i\` on these files fixes it`;
  const missing = "clang-format is not installed; run `npm run setup:debian`";
  if (process.env.CI) return missing;
  process.stdout.write(`SKIPPED: FORMAT OF C AND C++: ${missing}\n`);
  return null;
}
