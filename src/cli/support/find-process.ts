import { shellQuote } from "../../base/text/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import type { ProcessListing } from "../../exec/exec-process.ts";

/** Minimum length of a handle prefix, so that a typing error does not match a process by chance. */
const MIN_PREFIX_LENGTH = 4;
/** Maximum number of candidates in the error message for an ambiguous ID. */
const MAX_CANDIDATES = 5;

export const HANDLE_HELP = `ID is the name or the handle of a process (\`procwire ps\`), or an unambiguous prefix of its handle with at least ${MIN_PREFIX_LENGTH} characters.`;

export type ResolvedProcess = ProcessListing & { handle: string };

/** Finds the process of a name, a handle or an unambiguous prefix of a handle. */
export async function findProcess(client: Pick<ExecServerClient, "list">, id: string): Promise<ResolvedProcess> {
  return selectProcess(await client.list({ allSessions: true }), id);
}

/**
 * Selects the process of a complete handle, else of a name, else of a handle prefix. Of several processes with the same
 * name the live process wins, then the latest start. Throws if none or several match.
 */
export function selectProcess(listed: readonly ProcessListing[], id: string): ResolvedProcess {
  const processes = listed.filter(hasHandle);
  const exact = processes.find(({ handle }) => handle === id);
  if (exact) return exact;
  const named = latestPerOwner(processes.filter(({ name }) => name === id));
  if (named[0]) return requireSingle(named, id, "give a handle");
  if (id.length < MIN_PREFIX_LENGTH)
    throw new Error(
      `unknown name ${shellQuote(id)}, and too short for a handle; give at least ${MIN_PREFIX_LENGTH} characters`,
    );
  const matching = processes.filter(({ handle }) => handle.startsWith(id));
  if (!matching[0])
    throw new Error(`unknown handle or name ${shellQuote(id)}; \`procwire ps --all\` lists handles and names`);
  return requireSingle(matching, id, "give more characters");
}

/** Returns the live process of each owner, or else the last one: only one live process of an owner has the name. */
function latestPerOwner(processes: readonly ResolvedProcess[]): ResolvedProcess[] {
  const latest = new Map<string | undefined, ResolvedProcess>();
  for (const one of processes) {
    const other = latest.get(one.principal);
    const isLater = !other || (one.running === other.running ? one.startedAtMs > other.startedAtMs : one.running);
    if (isLater) latest.set(one.principal, one);
  }
  const all = [...latest.values()];
  const live = all.filter(({ running }) => running);
  return live.length > 0 ? live : all;
}

function requireSingle(candidates: readonly ResolvedProcess[], id: string, remedy: string): ResolvedProcess {
  const [first, ...others] = candidates;
  if (first && others.length === 0) return first;
  const shown = candidates.slice(0, MAX_CANDIDATES).map(describeCandidate);
  const more = candidates.length > MAX_CANDIDATES ? ", …" : "";
  throw new Error(`${shellQuote(id)} matches ${candidates.length} processes: ${shown.join(", ")}${more}; ${remedy}`);
}

/** Describes a candidate as `HANDLE (NAME, OWNER)`, without unknown members. */
function describeCandidate({ handle, name, principal }: ResolvedProcess): string {
  const details = [name, principal].filter((text) => text !== undefined).map(shellQuote);
  return details.length === 0 ? handle : `${handle} (${details.join(", ")})`;
}

function hasHandle(listing: ProcessListing): listing is ResolvedProcess {
  return listing.handle !== undefined;
}
