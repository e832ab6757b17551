import type { ConnectionState, ExecServerClient } from "../client/exec-server-client.ts";
import { type Command, type CommandDefinition, defineCommand, type OptionTable } from "./command.ts";
import {
  CONNECT_HELP,
  CONNECT_OPTIONS,
  type ConnectValues,
  connectTo,
  DEFAULT_URL,
  requireServerUrl,
} from "./options/connect-options.ts";

interface ServerCommandDefinition<O extends OptionTable>
  extends Omit<CommandDefinition<typeof CONNECT_OPTIONS & O>, "options"> {
  /** The options in addition to the connection options. */
  readonly options: O;
  /** Help text before the connection options. */
  readonly help: string;
  /** Help text after the connection options. */
  readonly notes?: string;
}

/** Defines a command that requires a server: adds the connection options and their help. */
export function defineServerCommand<const O extends OptionTable>(definition: ServerCommandDefinition<O>): Command {
  const { help, notes = "", options, ...rest } = definition;
  return defineCommand<typeof CONNECT_OPTIONS & O>({
    ...rest,
    options: { ...CONNECT_OPTIONS, ...options },
    help: `${help}\n${CONNECT_HELP}\nDefault server: ${DEFAULT_URL}\n${notes}`,
  });
}

/** Opens a client to the server that the options name. */
export function openClient(
  values: ConnectValues,
  onConnectionState?: (state: ConnectionState) => void,
): Promise<ExecServerClient> {
  return connectTo(requireServerUrl(values.connect), values, onConnectionState);
}
