// Checks the Node it runs on before any newer syntax is parsed, then hands over to the entry it was given, a path in
// this package: the sources, or a bundle of them. It runs the sources if they are newer than the bundle.
const major = Number(process.versions.node.split(".")[0]);
if (major < 24) {
  process.stderr.write(`procwire: needs Node 24 or newer; ${process.execPath} is ${process.version}\n`);
  process.exit(1);
}
const { existsSync, readdirSync, readFileSync, statSync, writeFileSync } = require("node:fs");
const { Script } = require("node:vm");
const [entry] = process.argv.splice(1, 2, "procwire").slice(1);
const root = __dirname.slice(0, __dirname.lastIndexOf("/"));
const bundles = `${root}/dist/bin`;
// Set by the build: what a command has compiled by its end is kept for all later runs.
const isBuild = process.env.PROCWIRE_KEEP_COMPILED === "1";
// `run` has a second code cache: with a server it calls other functions. V8 reads a whole cache, so each has its own.
const isConnected = process.env.PROCWIRE_CONNECT || process.argv.some((argument) => argument.startsWith("--connect"));
const codeCache = process.argv[2] === "run" && isConnected ? "connected.compiled" : "compiled";
let keepsCompiled = false;

if (entry.endsWith(".cjs") && (isBuild || isFresh(process.argv[2]))) {
  load(`${root}/${entry}`);
} else {
  keepCompiled();
  import(`${root}/src/cli/procwire.ts`);
}

/**
 * Reports whether the bundle of a command and the main bundle exist, and no source of them is newer than the build. An
 * installed package has no sources.
 */
function isFresh(command) {
  if (!existsSync(`${root}/src`)) return true;
  if (!existsSync(`${root}/${entry}`)) return false;
  const builtAt = statSync(`${root}/dist/stamp`, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const own = `${bundles}/${command}.cjs.sources`;
  // `help` and other names load the bundles of several commands.
  const all = () => readdirSync(bundles).flatMap((name) => (name.endsWith(".sources") ? `${bundles}/${name}` : []));
  const lists = [`${bundles}/procwire.cjs.sources`, ...(existsSync(own) ? [own] : all())];
  const isOlder = (path) => (statSync(`${root}/${path}`, { throwIfNoEntry: false })?.mtimeMs ?? Infinity) <= builtAt;
  return lists.every((list) => read(list)?.toString("latin1").split("\n").every(isOlder) ?? false);
}

/**
 * Runs a bundle as a script, from the code cache that the build stores next to it. Node's own cache would omit
 * functions that are compiled on their first call, which is nearly all of them. If the code cache is missing or from
 * another Node version, Node loads the bundle and caches what it can.
 */
function load(filename) {
  const compiled = `${filename}.${codeCache}`;
  const cachedData = read(compiled);
  if (!cachedData && !isBuild) return loadByNode(filename);
  // A bundle is ASCII; decoding it as more would take longer.
  const source = readFileSync(filename, "latin1");
  const wrapped = `(function (exports, require, module, __filename, __dirname) {${source}\n})`;
  const script = new Script(wrapped, { filename, cachedData });
  if (script.cachedDataRejected) return loadByNode(filename);
  if (isBuild) process.on("exit", () => writeFileSync(compiled, script.createCachedData()));
  const directory = filename.slice(0, filename.lastIndexOf("/"));
  const module = { exports: {} };
  script.runInThisContext()(module.exports, requireFrom(directory), module, filename, directory);
  return module.exports;
}

/** For a bundle's other bundles, built-ins and packages. */
function requireFrom(directory) {
  return (id) => {
    if (id.startsWith("node:")) return require(id);
    if (id.startsWith("./")) return load(`${directory}/${id.slice(2)}`);
    keepCompiled();
    return require(id);
  };
}

function loadByNode(filename) {
  keepCompiled();
  return require(filename);
}

/** Enables Node's compile cache from here on. If its directory is not writable, Node compiles each time. */
function keepCompiled() {
  if (keepsCompiled) return;
  keepsCompiled = true;
  require("node:module").enableCompileCache(`${root}/dist/compiled`);
}

function read(path) {
  try {
    return readFileSync(path);
  } catch {
    return undefined;
  }
}
