import { execFileSync, spawnSync } from "node:child_process";

/**
 * C and C++ are laid out as `.clang-format` says. What versions 14 (Debian 12) to 22 make of these files is the same.
 * Where there is no clang-format this is skipped, loudly; in CI that is an error.
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
