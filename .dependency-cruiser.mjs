// Import rules: a directory may import only the directories of its row.
const MAY_IMPORT = {
  base: [],
  async: ["base"],
  protocol: ["base", "async"],
  exec: ["base", "async", "protocol"],
  connection: ["base", "async", "protocol"],
  local: ["base", "async", "exec", "protocol"],
  native: ["base", "async", "connection", "exec", "files", "local", "protocol"],
  files: ["base", "async", "protocol"],
  http: ["base", "async", "protocol"],
  forward: ["base", "async", "protocol"],
  network: ["base", "async", "forward", "protocol"],
  environment: ["base", "async", "files", "protocol"],
  sandbox: ["base", "async", "exec", "protocol"],
  // Files only by their interface: see the extra rule below.
  server: ["base", "async", "connection", "exec", "files", "forward", "protocol"],
  client: ["base", "async", "connection", "exec", "forward", "protocol"],
  tools: ["base", "async", "exec", "protocol", "sandbox"],
  // Of files the output writer alone: see the extra rule below.
  agent: ["base", "async", "files", "protocol", "tools"],
  fanout: ["base", "async", "agent", "exec", "files", "protocol", "tools"],
  // Composes the local host. Only the command line and the public API import it.
  host: [
    "agent",
    "async",
    "base",
    "client",
    "connection",
    "environment",
    "exec",
    "files",
    "forward",
    "http",
    "local",
    "native",
    "network",
    "protocol",
    "sandbox",
    "server",
    "tools",
  ],
  // Package entries; no other directory imports them.
  adapters: ["base", "tools"],
  web: ["base", "async", "client", "connection", "exec", "forward", "protocol"],
};

const rules = Object.entries(MAY_IMPORT).map(([directory, allowed]) => ({
  name: `${directory}-imports`,
  severity: "error",
  comment: `src/${directory} may import ${allowed.join(", ") || "nothing"} of this project`,
  from: { path: `^src/${directory}/` },
  to: { path: "^src/", pathNot: [`^src/(${[directory, ...allowed].join("|")})/`, "^src/version\\.ts$"] },
}));

// Layers of the fan-out, in the order that a row passes them. Each may also import job.ts and job-settings.ts.
const FANOUT_LAYERS = {
  input: [],
  cost: [],
  ledger: ["cost"],
  row: ["input", "ledger"],
  output: ["ledger", "cost"],
  batch: ["ledger", "cost", "row"],
  run: ["input", "ledger", "cost", "row", "batch", "output"],
  tool: ["input", "ledger", "row", "output", "run"],
  view: ["ledger", "cost", "row", "output"],
};

const fanoutRules = Object.entries(FANOUT_LAYERS).map(([layer, allowed]) => ({
  name: `fanout-${layer}-imports`,
  severity: "error",
  comment: `src/fanout/${layer} may import ${allowed.join(", ") || "no other layer"} of the fan-out`,
  from: { path: `^src/fanout/${layer}/` },
  to: {
    path: "^src/fanout/",
    pathNot: [`^src/fanout/(${[layer, ...allowed].join("|")})/`, "^src/fanout/job(-settings)?\\.ts$"],
  },
}));

export default {
  forbidden: [
    ...rules,
    ...fanoutRules,
    {
      name: "server-knows-files-by-interface",
      severity: "error",
      from: { path: "^src/server/" },
      to: { path: "^src/files/", pathNot: "^src/files/file-system\\.ts$" },
    },
    {
      name: "agent-and-fanout-write-output-only",
      severity: "error",
      from: { path: "^src/(agent|fanout)/" },
      to: { path: "^src/files/", pathNot: "^src/files/output-(directory|file)\\.ts$" },
    },
    {
      name: "server-has-no-tcp-sockets",
      severity: "error",
      from: { path: "^src/(server/|client/(?!node/))" },
      to: { path: "^src/forward/tcp-streams\\.ts$" },
    },
    {
      name: "native-only-from-host-and-cli",
      severity: "error",
      comment: "only host/ and the command line compose it",
      from: { path: "^src/[^/]+/", pathNot: "^src/(native|cli|host)/" },
      to: { path: "^src/native/" },
    },
    {
      name: "portable-directories-use-no-node-builtin",
      severity: "error",
      comment: "browsers run these directories",
      from: {
        path: "^src/(base|protocol|async|exec)/|^src/client/(?!node/)|^src/connection/connection\\.ts$",
      },
      to: { dependencyTypes: ["core"] },
    },
    {
      name: "no-cycles",
      severity: "error",
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ["type-only"] } },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
    enhancedResolveOptions: { extensions: [".ts", ".js", ".mjs", ".json"] },
  },
};
