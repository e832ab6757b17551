/**
 * Recognizes errors of the drivers `pg` and `pg-pool`. The drivers give these errors neither a code nor a class, so
 * their text is the only criterion. No other module decides by the text of a driver's error.
 */

/** Start of each driver message about a lost, timed out or closed connection. */
const LOST_TEXT =
  /^(Connection terminated|timeout exceeded when trying to connect|timeout expired|Client has encountered a connection error|Client was closed)/;

/** Reports whether a driver message means that the connection is lost or was never made. */
export function isLostConnectionText(message: string): boolean {
  return LOST_TEXT.test(message);
}
