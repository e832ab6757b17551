import type { ConnectionState, ExecServerClient } from "../client/exec-server-client.ts";
import { type Command, type CommandDefinition, defineCommand, type OptionTable } from "./command.ts";
import { CONNECT_OPTIONS, type ConnectValues, connectTo, requireServerUrl } from "./options/connect-options.ts";
import { type CompletedIds, processCandidates } from "./support/process-candidates.ts";

interface ServerCommandDefinition<O extends OptionTable>
  extends Omit<CommandDefinition<typeof CONNECT_OPTIONS & O>, "options"> {
  /** The options in addition to the connection options. */
  readonly options: O;
  /** IDs of processes that the command takes. Default: none. */
  readonly ids?: CompletedIds;
}

/** Defines a command that requires a server: adds the connection options and a pointer to their help. */
export function defineServerCommand<const O extends OptionTable>(definition: ServerCommandDefinition<O>): Command {
  const { help, options, ids, ...rest } = definition;
  return defineCommand<typeof CONNECT_OPTIONS & O>({
    ...rest,
    options: { ...CONNECT_OPTIONS, ...options },
    help: { ...help, connection: true },
    complete: ids && ((words) => processCandidates(words, ids)),
  });
}

/** Opens a client to the server that the options name. */
export function openClient(
  values: ConnectValues,
  onConnectionState?: (state: ConnectionState) => void,
): Promise<ExecServerClient> {
  return connectTo(requireServerUrl(values.connect), values, onConnectionState);
}
