// Checks the Node it runs on before any newer syntax is parsed, then hands over to the entry it was given.
const major = Number(process.versions.node.split(".")[0]);
if (major < 24) {
  process.stderr.write(`procwire: needs Node 24 or newer; ${process.execPath} is ${process.version}\n`);
  process.exit(1);
}
const [entry] = process.argv.splice(1, 2, "procwire").slice(1);
await import(entry);
