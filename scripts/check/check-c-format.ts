import { execFileSync, spawnSync } from "node:child_process";

/**
 * Checks that C and C++ are formatted as `.clang-format` says. Versions 14 (Debian 12) to 22 format these files
 * identically. Without clang-format the check is skipped with a warning; in CI that is an error.
 */
export function checkCFormat(): string | null {
  const files = execFileSync("git", ["ls-files", "*.c", "*.cc", "*.h"], { encoding: "utf8" })
    .trim()
    .split("\n");
  const ran = spawnSync("clang-format", ["--dry-run", "-Werror", ...files], { encoding: "utf8" });
  if (ran.status === 0) return null;
  if (!ran.error) return `${ran.stderr}\`clang-format -i\` on these files mends it`;
  const missing = "there is no clang-format; `npm run setup:debian` installs it";
  if (process.env.CI) return missing;
  process.stdout.write(`SKIPPED: THE LAYOUT OF C AND C++ IS NOT CHECKED: ${missing}\n`);
  return null;
}
