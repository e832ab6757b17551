// Checks the Node it runs on before any newer syntax is parsed, then hands over to the entry it was given.
const major = Number(process.versions.node.split(".")[0]);
if (major < 24) {
  process.stderr.write(`procwire: needs Node 24 or newer; ${process.execPath} is ${process.version}\n`);
  process.exit(1);
}
// Compiled once, by the build; where the folder cannot be written it is compiled each time, as before.
require("node:module").enableCompileCache(`${__dirname}/../dist/compiled`);
const [entry] = process.argv.splice(1, 2, "procwire").slice(1);
// A bundle is a script: loading it that way leaves out Node's module loader, a third of its start-up time.
if (entry.endsWith(".cjs")) require(entry);
else import(entry);
