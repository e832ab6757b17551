import type { ConnectionState, ExecServerClient } from "../client/exec-server-client.ts";
import { type Command, type CommandDefinition, defineCommand, type OptionTable } from "./command.ts";
import type { HelpPage } from "./help/help-page.ts";
import type { CommandWords } from "./help/summaries.ts";
import { CONNECT_OPTIONS, type ConnectValues, connectTo, requireServerUrl } from "./options/connect-options.ts";
import { HANDLE_HELP } from "./support/find-process.ts";
import { type CompletedIds, processCandidates } from "./support/process-candidates.ts";

interface ServerCommandDefinition<O extends OptionTable>
  extends Omit<CommandDefinition<typeof CONNECT_OPTIONS & O>, "options"> {
  /** The options in addition to the connection options. Default: none. */
  readonly options?: O;
  /** IDs of processes that the command takes. Adds their description to the help. Default: none. */
  readonly ids?: CompletedIds;
}

/** Defines a command that requires a server: adds the connection options and a pointer to their help. */
export function defineServerCommand<const O extends OptionTable = Record<never, never>>(
  name: CommandWords,
  help: HelpPage,
  definition: ServerCommandDefinition<O>,
): Command {
  const { options, ids, ...rest } = definition;
  const notes = ids ? [help.notes, HANDLE_HELP].join(" ").trim() : help.notes;
  return defineCommand<typeof CONNECT_OPTIONS & O>(
    name,
    { ...help, connection: true, notes },
    {
      ...rest,
      options: Object.assign({ ...CONNECT_OPTIONS }, options),
      complete: ids && ((words) => processCandidates(words, ids)),
    },
  );
}

/** Opens a client to the server that the options name. */
export function openClient(
  values: ConnectValues,
  onConnectionState?: (state: ConnectionState) => void,
): Promise<ExecServerClient> {
  return connectTo(requireServerUrl(values.connect), values, onConnectionState);
}
