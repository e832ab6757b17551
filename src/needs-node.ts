/** Imported before everything else, so that an older Node says this one line and not where it first fails. */
const OLDEST_NODE = 24;

const major = Number(process.versions.node.split(".")[0]);
if (major < OLDEST_NODE)
  throw new Error(`procwire needs Node ${OLDEST_NODE} or newer; ${process.execPath} is ${process.version}`);

export {};
