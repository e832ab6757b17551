// Who may import whom. A folder not named in a row may not be imported from it.
const MAY_IMPORT = {
  async: [],
  protocol: ["async"],
  exec: ["async", "protocol"],
  connection: ["async", "protocol"],
  local: ["async", "exec", "protocol"],
  native: ["async", "connection", "exec", "local", "protocol"],
  files: ["async", "protocol"],
  http: ["async", "protocol"],
  forward: ["async", "protocol"],
  environment: ["async", "files", "protocol"],
  sandbox: ["async", "exec", "protocol"],
  // Files only by their interface: see the extra rule below.
  server: ["async", "connection", "exec", "files", "forward", "protocol"],
  client: ["async", "connection", "exec", "forward", "protocol"],
  tools: ["async", "exec", "protocol", "sandbox"],
  agent: ["async", "protocol", "tools"],
  fanout: ["async", "agent", "exec", "protocol", "tools"],
  // It puts this machine together; only the command line and the public API know it.
  host: [
    "agent",
    "async",
    "client",
    "connection",
    "environment",
    "exec",
    "files",
    "forward",
    "http",
    "local",
    "native",
    "protocol",
    "sandbox",
    "server",
    "tools",
  ],
  // Nobody imports them: each is an entry of the package.
  adapters: ["tools"],
  web: ["async", "client", "connection", "exec", "forward", "protocol"],
};

const rules = Object.entries(MAY_IMPORT).map(([folder, allowed]) => ({
  name: `${folder}-imports`,
  severity: "error",
  comment: `src/${folder} may import ${allowed.join(", ") || "nothing"} of this project`,
  from: { path: `^src/${folder}/` },
  to: { path: "^src/", pathNot: [`^src/(${[folder, ...allowed].join("|")})/`, "^src/version\\.ts$"] },
}));

// The rooms of the fan-out, in the order a row passes them; each may also import job.ts, their common words.
const FANOUT_ROOMS = {
  input: [],
  money: [],
  ledger: ["money"],
  row: ["input", "ledger"],
  output: ["ledger", "money"],
  batch: ["ledger", "money", "row"],
  run: ["input", "ledger", "money", "row", "batch", "output"],
  tool: ["input", "ledger", "row", "output", "run"],
  view: ["ledger", "money", "row", "output"],
};

const fanoutRules = Object.entries(FANOUT_ROOMS).map(([room, allowed]) => ({
  name: `fanout-${room}-imports`,
  severity: "error",
  comment: `src/fanout/${room} may import ${allowed.join(", ") || "no other room"} of the fan-out`,
  from: { path: `^src/fanout/${room}/` },
  to: {
    path: "^src/fanout/",
    pathNot: [`^src/fanout/(${[room, ...allowed].join("|")})/`, "^src/fanout/job\\.ts$"],
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
      name: "server-is-given-its-sockets",
      severity: "error",
      from: { path: "^src/(server/|client/[^/]+\\.ts$)" },
      to: { path: "^src/forward/tcp-streams\\.ts$" },
    },
    {
      name: "native-decides-nothing",
      severity: "error",
      comment: "it is composed by host/ and the command line",
      from: { path: "^src/[^/]+/", pathNot: "^src/(native|cli|host)/" },
      to: { path: "^src/native/" },
    },
    {
      name: "universal-folders-use-no-node-builtin",
      severity: "error",
      comment: "a browser runs these",
      from: {
        path: "^src/(protocol|async|exec)/|^src/client/[^/]+\\.ts$|^src/connection/(connection|memory-connection)\\.ts$",
      },
      to: { dependencyTypes: ["core"] },
    },
    {
      name: "no-circles",
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
