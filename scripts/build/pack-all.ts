/**
 * `npm run pack:all`: builds every package as a tarball in `release/`, with an SBOM of the main package.
 * With `--release` it first checks the conditions of a release (`check-release.ts`).
 *
 * The main package differs from the repository: it depends on `procwire-client` in place of its files, and on the
 * platform packages (in the repository `npm ci` would fail on an unpublished one). Its manifest has no scripts and
 * other fields of a clone.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { NATIVE_FILES } from "../../src/native/native-files.ts";
import { checkRelease } from "../check/check-release.ts";
import { manPage } from "../docs/man-page.ts";
import { CLIENT_EXPORTS, CLIENT_NAME, CLIENT_README, clientPackage, withClientImports } from "./client-package.ts";
import { rewriteLinks } from "./packed-links.ts";
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

/** Returns the path of the tarball of `procwire-client`. */
export function clientTarball(): string {
  return join(RELEASE, `${CLIENT_NAME}-${readManifest().version}.tgz`);
}

/** Packs all packages from the built files. */
export async function packAll(): Promise<void> {
  rmSync(RELEASE, { recursive: true, force: true });
  const stages = join(RELEASE, "stages");
  await packMain(join(stages, "main"));
  packClient(join(stages, "client"));
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

async function packMain(stage: string): Promise<void> {
  const manifest = readManifest();
  for (const field of CLONE_FIELDS) delete manifest[field];
  manifest.optionalDependencies = platformPackages(manifest.version);
  manifest.dependencies = { ...(manifest.dependencies as object), [CLIENT_NAME]: manifest.version };
  // The file with side effects is in `procwire-client`.
  manifest.sideEffects = false;
  const clientFiles = new Set(clientPackage().files);
  const [listed]: [{ files: { path: string }[] }] = JSON.parse(npm("pack", "--dry-run", "--json", "--ignore-scripts"));
  const paths = listed.files.map(({ path }) => path).filter((path) => !clientFiles.has(path));
  for (const path of paths) {
    copy(path, join(stage, path));
    if (/^dist\/.*\.(js|d\.ts)$/.test(path)) writeFileSync(join(stage, path), withClientImports(path, clientFiles));
  }
  rewriteLinks(stage, paths, manifest);
  // A list, because npm ignores a single path when it links the pages of a global package.
  manifest.man = ["./man/procwire.1"];
  manifest.files = [...(manifest.files as string[]), "man"];
  mkdirSync(join(stage, "man"));
  writeFileSync(join(stage, "man", "procwire.1"), await manPage());
  pack(stage, manifest);
}

/** Packs the library alone. */
export function packClient(stage: string): void {
  const { version, license, type, engines, homepage, repository, bugs, dependencies = {} } = readManifest();
  const { files, dependencies: names } = clientPackage();
  for (const path of files) copy(path, join(stage, path));
  copy("LICENSE", join(stage, "LICENSE"));
  writeFileSync(join(stage, "README.md"), CLIENT_README);
  const versionOf = (name: string) => {
    const found = (dependencies as Record<string, string>)[name];
    if (found === undefined) throw new Error(`procwire-client imports ${name}, which package.json does not list`);
    return found;
  };
  pack(stage, {
    name: CLIENT_NAME,
    version,
    description: "Processes, files, HTTP requests and ports on the local host and on procwire servers",
    keywords: ["process", "exec", "pty", "terminal", "remote", "websocket", "procwire"],
    ...{ homepage, repository, bugs, license, type, engines },
    sideEffects: ["./dist/needs-node.js"],
    exports: CLIENT_EXPORTS,
    files: ["dist"],
    dependencies: Object.fromEntries(names.map((name) => [name, versionOf(name)])),
    optionalDependencies: platformPackages(version),
  });
}

/** Returns the platform packages of the same version, as optional dependencies. */
function platformPackages(version: string): Record<string, string> {
  return Object.fromEntries(PLATFORMS.map(({ name }) => [`@procwire/${name}`, version]));
}

function packPlatform(stage: string, { name, cpu, libc, ran }: Platform): void {
  const { version, license } = readManifest();
  for (const file of NATIVE_FILES) copy(join(PREBUILT, name, file), join(stage, file));
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
    files: [...NATIVE_FILES],
  });
}

interface BillOfMaterials {
  metadata: { component: { name: string; "bom-ref": string } };
  components: { "bom-ref": string; name: string; properties: { name: string }[]; [field: string]: unknown }[];
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
  addClient(bill);
  return `${JSON.stringify(bill, null, 2)}\n`;
}

/** Adds `procwire-client`, which the lockfile of a clone does not contain. */
function addClient({ metadata, components, dependencies }: BillOfMaterials): void {
  const { version, license } = readManifest();
  const ref = `${CLIENT_NAME}@${version}`;
  const details = { type: "library", version, purl: `pkg:npm/${ref}`, licenses: [{ license: { id: license } }] };
  components.push({ "bom-ref": ref, name: CLIENT_NAME, ...details, properties: [] });
  const names = clientPackage().dependencies;
  const refs = components.filter(({ name }) => names.includes(name)).map((component) => component["bom-ref"]);
  dependencies.push({ ref, dependsOn: refs });
  dependencies.find((dependency) => dependency.ref === metadata.component["bom-ref"])?.dependsOn.push(ref);
}

/** Prints a step on stderr. The paths of the packages are the only output on stdout. */
function logStep(text: string): void {
  process.stderr.write(`pack:all: ${text}\n`);
}

function pack(stage: string, manifest: Manifest & { name?: string }): void {
  logStep(`pack ${manifest.name}`);
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
async function makeRelease(): Promise<void> {
  requirePrebuildTools();
  logStep("build dist/");
  buildIfStale();
  logStep(`compile the native files of ${PLATFORMS.length} platforms`);
  await prebuild({ native: "native", out: PREBUILT, objects: join(PREBUILT, ".objects"), log: logStep });
  await packAll();
}

if (import.meta.main) {
  if (process.argv.includes("--release") && !checkRelease()) process.exit(1);
  await makeRelease();
  for (const path of globSync(`${RELEASE}/*`).sort()) console.log(path);
}
