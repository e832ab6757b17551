import { shellQuote } from "../../base/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import type { ProcessListing } from "../../exec/exec-process.ts";

/** Minimum length of a handle prefix, so that a typing error does not match a process by chance. */
const MIN_PREFIX_LENGTH = 4;
/** Maximum number of handles in the error message for an ambiguous prefix. */
const MAX_LISTED_HANDLES = 5;

export const HANDLE_HELP = `ID: handle of the process (\`procwire ps\`), or an unambiguous prefix of at least ${MIN_PREFIX_LENGTH} characters
`;

/** Finds the process of a handle or of an unambiguous prefix. */
export async function findProcess(client: Pick<ExecServerClient, "list">, id: string): Promise<ResolvedProcess> {
  const processes = (await client.list({ allSessions: true })).filter(hasHandle);
  const exact = processes.find(({ handle }) => handle === id);
  if (exact) return exact;
  if (id.length < MIN_PREFIX_LENGTH)
    throw new Error(`${shellQuote(id)} is too short; give at least ${MIN_PREFIX_LENGTH} characters`);
  const [first, ...others] = processes.filter(({ handle }) => handle.startsWith(id));
  if (!first) throw new Error(`unknown handle ${shellQuote(id)}; \`procwire ps --all\` lists them`);
  if (others.length === 0) return first;
  const named = [first, ...others].slice(0, MAX_LISTED_HANDLES).map(({ handle }) => handle);
  throw new Error(
    `${shellQuote(id)} matches ${others.length + 1} processes: ${named.join(", ")}; give more characters`,
  );
}

export type ResolvedProcess = ProcessListing & { handle: string };

function hasHandle(listing: ProcessListing): listing is ResolvedProcess {
  return listing.handle !== undefined;
}
