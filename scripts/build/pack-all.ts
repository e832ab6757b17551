/**
 * `npm run pack:all`: builds every package as a tarball in `release/`, with an SBOM of the main package.
 * With `--release` it first checks the conditions of a release (`check-release.ts`).
 *
 * The main package's manifest differs from the repository's: it has the platform packages as optional dependencies
 * (in the repository `npm ci` would fail on an unpublished one), and no scripts and other fields of a clone.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { checkRelease } from "../check/check-release.ts";
import { manPage } from "../docs/man-page.ts";
import { PLATFORMS, type Platform } from "./platforms.ts";
import { PREBUILT, prebuild, requirePrebuildTools } from "./prebuild.ts";

export const RELEASE = "release";

/** Fields of the repository's manifest that a package does not need. */
const CLONE_FIELDS = ["scripts", "devDependencies", "optionalDependencies", "allowScripts"];

interface Manifest {
  version: string;
  license: string;
  [field: string]: unknown;
}

/** Returns the path of the tarball of a platform package, or of the main package for null. */
export function tarball(platform: Platform | null): string {
  const name = platform === null ? "procwire" : `procwire-${platform.name}`;
  return join(RELEASE, `${name}-${readManifest().version}.tgz`);
}

/** Packs all packages from the built files. */
export function packAll(): void {
  rmSync(RELEASE, { recursive: true, force: true });
  const stages = join(RELEASE, "stages");
  packMain(join(stages, "main"));
  for (const platform of PLATFORMS) packPlatform(join(stages, platform.name), platform);
  rmSync(stages, { recursive: true });
  writeFileSync(join(RELEASE, `procwire-${readManifest().version}.cdx.json`), billOfMaterials());
}

/** Rebuilds `dist/` when a source is newer than it. */
export function buildIfStale(): void {
  const builtAt = existsSync("dist/stamp") ? statSync("dist/stamp").mtimeMs : 0;
  const sources = globSync(["src/**/*", "tsconfig*.json", "scripts/build/build*.ts"]);
  if (sources.some((path) => statSync(path).mtimeMs > builtAt))
    execFileSync(process.execPath, ["scripts/build/build.ts"], { stdio: ["ignore", "ignore", "inherit"] });
}

function packMain(stage: string): void {
  const manifest = readManifest();
  for (const field of CLONE_FIELDS) delete manifest[field];
  manifest.optionalDependencies = Object.fromEntries(
    PLATFORMS.map(({ name }) => [`@procwire/${name}`, manifest.version]),
  );
  const [listed]: [{ files: { path: string }[] }] = JSON.parse(npm("pack", "--dry-run", "--json", "--ignore-scripts"));
  for (const { path } of listed.files) copy(path, join(stage, path));
  // A list, because npm ignores a single path when it links the pages of a global package.
  manifest.man = ["./man/procwire.1"];
  manifest.files = [...(manifest.files as string[]), "man"];
  mkdirSync(join(stage, "man"));
  writeFileSync(join(stage, "man", "procwire.1"), manPage());
  pack(stage, manifest);
}

function packPlatform(stage: string, { name, cpu, libc, ran }: Platform): void {
  const { version, license } = readManifest();
  for (const file of ["procwire.node", "watchdog", "supervisor"]) copy(join(PREBUILT, name, file), join(stage, file));
  copy("LICENSE", join(stage, "LICENSE"));
  writeFileSync(
    join(stage, "README.md"),
    `# @procwire/${name}\n\nThe native addon and the programs of \`procwire\` for Linux on ${cpu} with ${libc}. Not for use by itself: \`procwire\`\nnames it as an optional dependency. It is ${ran}.\n`,
  );
  pack(stage, {
    name: `@procwire/${name}`,
    version,
    description: `The native addon of procwire for Linux on ${cpu} with ${libc}`,
    license,
    type: "commonjs",
    os: ["linux"],
    cpu: [cpu],
    libc: [libc],
    // Makes Yarn unpack the package, because programs cannot run from an archive.
    preferUnplugged: true,
    files: ["procwire.node", "watchdog", "supervisor"],
  });
}

interface BillOfMaterials {
  metadata: { component: { name: string } };
  components: { "bom-ref": string; name: string; properties: { name: string }[] }[];
  dependencies: { ref: string; dependsOn: string[] }[];
}

/**
 * Returns the SBOM of the main package's runtime dependencies, by `npm sbom`. Its `--omit=dev` is unusable: it drops
 * runtime dependencies that a development dependency also needs (npm 11.19).
 */
function billOfMaterials(): string {
  const bill: BillOfMaterials = JSON.parse(npm("sbom", "--sbom-format=cyclonedx", "--package-lock-only"));
  const onlyInAClone = Object.keys(readManifest().optionalDependencies ?? {});
  bill.metadata.component.name = "procwire";
  bill.components = bill.components.filter(
    ({ name, properties }) =>
      !onlyInAClone.includes(name) && !properties.some((property) => property.name.endsWith(":development")),
  );
  const runtimeRefs = new Set(bill.components.map((component) => component["bom-ref"]));
  bill.dependencies = bill.dependencies.flatMap(({ ref, dependsOn }) =>
    runtimeRefs.has(ref) || ref.startsWith("procwire@")
      ? [{ ref, dependsOn: dependsOn.filter((other) => runtimeRefs.has(other)) }]
      : [],
  );
  return `${JSON.stringify(bill, null, 2)}\n`;
}

function pack(stage: string, manifest: Manifest & { name?: string }): void {
  writeFileSync(join(stage, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
  npm("pack", `./${stage}`, "--pack-destination", RELEASE, "--ignore-scripts");
}

function copy(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  cpSync(from, to);
}

function readManifest(): Manifest {
  return JSON.parse(readFileSync("package.json", "utf8"));
}

function npm(...args: string[]): string {
  return execFileSync("npm", args, {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    maxBuffer: 64 * 1024 * 1024,
  });
}

/** Builds all files of a release from the sources. */
export async function makeRelease(): Promise<void> {
  requirePrebuildTools();
  buildIfStale();
  await prebuild({ native: "native", out: PREBUILT, objects: join(PREBUILT, ".objects") });
  packAll();
}

if (import.meta.main) {
  if (process.argv.includes("--release") && !checkRelease()) process.exit(1);
  await makeRelease();
  for (const path of globSync(`${RELEASE}/*`).sort()) console.log(path);
}
