import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Writes the wheel of the Python package `tiny` into a directory. Returns its file name. Importing it prints `installed`. */
export function writeWheel(directory: string): string {
  const wheel = "tiny-1.0-py3-none-any.whl";
  const info = "tiny-1.0.dist-info";
  const source = mkdtempSync(join(tmpdir(), "procwire-wheel-"));
  mkdirSync(join(source, info));
  const files: Record<string, string> = {
    "tiny.py": "print('installed')\n",
    [`${info}/METADATA`]: "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    [`${info}/WHEEL`]: "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
  };
  files[`${info}/RECORD`] = [...Object.keys(files), `${info}/RECORD`].map((name) => `${name},,\n`).join("");
  for (const [name, text] of Object.entries(files)) writeFileSync(join(source, name), text);
  execFileSync("python3", ["-m", "zipfile", "-c", join(directory, wheel), "tiny.py", info], { cwd: source });
  rmSync(source, { recursive: true });
  return wheel;
}

/** Writes the files of an npm registry with the package `tiny` into a directory. Its module is the text `installed`. */
export function writeNpmRegistry(directory: string, url: string): void {
  const manifest = { name: "tiny", version: "1.0.0", main: "tiny.js" };
  mkdirSync(join(directory, "package"));
  writeFileSync(join(directory, "package", "package.json"), JSON.stringify(manifest));
  writeFileSync(join(directory, "package", "tiny.js"), "module.exports = 'installed';\n");
  execFileSync("tar", ["-czf", "tiny.tgz", "package"], { cwd: directory });
  const versions = { "1.0.0": { ...manifest, dist: { tarball: `${url}/tiny.tgz` } } };
  writeFileSync(join(directory, "tiny"), JSON.stringify({ name: "tiny", "dist-tags": { latest: "1.0.0" }, versions }));
}

/** Path of Python itself: a wrapper of `python3` may write outside of the workspace. */
export function pythonPath(): string {
  return execFileSync("python3", ["-c", "import sys; print(sys.executable)"], { encoding: "utf8" }).trim();
}
