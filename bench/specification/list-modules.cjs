// Loaded into a command: at its exit it writes the names of Node's modules that the command loaded.
const { writeFileSync } = require("node:fs");
const before = new Set(process.moduleLoadList);

process.on("exit", () => {
  const loaded = process.moduleLoadList.filter((name) => name.startsWith("NativeModule") && !before.has(name));
  writeFileSync(process.env.PROCWIRE_MODULES_FILE, loaded.join("\n"));
});
