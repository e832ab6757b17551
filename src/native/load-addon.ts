import { errorMessage } from "../base/error-message.ts";
import { OTHER_RUNTIME } from "../base/js-runtime.ts";
import { MAX_QUEUED_INPUT_BYTES, MAX_WRITE_ID_CHARS, MAX_WRITE_IDS } from "../exec/backend/input-limits.ts";
import { NativeAddon } from "./addon.ts";
import { compileOnDemand, nativeFileCandidates } from "./native-files.ts";

export type LoadedAddon = { type: "loaded"; addon: NativeAddon } | { type: "missing"; why: string };

let loaded: LoadedAddon | null = null;

/** Returns the addon, loaded once, or the reason why it is missing. Compiles it if necessary. */
export function loadAddon(): LoadedAddon {
  loaded ??= load() ?? compile();
  return loaded;
}

/** Returns the addon; null if it is missing or must be compiled first. */
export function loadBuiltAddon(): NativeAddon | null {
  loaded ??= load();
  return loaded?.type === "loaded" ? loaded.addon : null;
}

/** Reasons why the existing files cannot be loaded. */
const problems: string[] = [];

/** Returns null if the addon must be compiled. */
function load(): LoadedAddon | null {
  if (OTHER_RUNTIME !== null) return { type: "missing", why: `${OTHER_RUNTIME} cannot load it; use Node 24` };
  const named = process.env.PROCWIRE_NATIVE_SPAWNER;
  if (named !== undefined) return loadFile(named);
  problems.length = 0;
  for (const path of nativeFileCandidates("procwire.node")) {
    const found = loadFile(path);
    if (found.type === "loaded") return found;
    problems.push(found.why);
  }
  return null;
}

function compile(): LoadedAddon {
  const built = compileOnDemand();
  if (built.type === "built") return loadFile(built.path);
  return { type: "missing", why: [...problems, built.why].join("; ") };
}

function loadFile(path: string): LoadedAddon {
  try {
    // `require` would resolve the path again.
    const module: { exports: unknown } = { exports: {} };
    process.dlopen(module, path);
    if (!isAddon(module.exports)) return { type: "missing", why: `${path} is not the native addon of this version` };
    module.exports.setInputLimits(MAX_QUEUED_INPUT_BYTES, MAX_WRITE_IDS, MAX_WRITE_ID_CHARS);
    return { type: "loaded", addon: module.exports };
  } catch (error) {
    return { type: "missing", why: errorMessage(error) };
  }
}

function isAddon(exports: unknown): exports is NativeAddon {
  if (typeof exports !== "object" || exports === null) return false;
  return Object.keys(new NativeAddon()).every((name) => name in exports);
}
