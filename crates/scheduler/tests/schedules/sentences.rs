use celeriac_scheduler::Cron;

#[test]
fn expressions_are_said_in_plain_words() {
    for (text, sentence) in [
        ("0 9 * * Mon-Fri", "at 09:00 on Monday to Friday"),
        ("0 9 * * *", "at 09:00 every day"),
        ("0,30 9,17 * * *", "at 09:00, 09:30, 17:00 and 17:30 every day"),
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("*/5 9-17 * * 1-5", "every 5 minutes between 09:00 and 17:59 on Monday to Friday"),
        ("*/5 22-2 * * *", "every 5 minutes between 22:00 and 02:59"),
        ("*/7 * * * *", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
        ("@hourly", "every hour on the hour"),
        ("30 * * * *", "every hour at minute 30"),
        ("0 */2 * * *", "every 2 hours on the hour"),
        ("15 */6 * * *", "at 00:15, 06:15, 12:15 and 18:15 every day"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("5,10 * * * *", "at minutes 5 and 10 of every hour"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("* * 9 * * *", "every second between 09:00 and 09:59"),
        ("*/30 30 9 * * *", "at 09:30:00 and 09:30:30 every day"),
        ("* */15 * * * *", "every second of one minute every 15 minutes"),
        ("5 0,1,2,7 * * * *", "at second 5 of minutes 0 to 2 and 7 of every hour"),
        ("0 0 1 * *", "at 00:00 on the 1st of the month"),
        ("0 0 1 1 *", "at 00:00 on the 1st of the month, in January"),
        (
            "0 0 1-7,15 */2 *",
            "at 00:00 on the 1st to 7th and the 15th of the month, in January, March, May, July, September and November",
        ),
        ("0 0 1 Nov-Feb *", "at 00:00 on the 1st of the month, in November to February"),
        ("0 12 L * *", "at 12:00 on the last day of the month"),
        (
            "0 12 1,15W,LW * *",
            "at 12:00 on the 1st, the workday nearest to the 15th and the last workday of the month",
        ),
        ("0 17 * * 5L", "at 17:00 on the last Friday of the month"),
        ("0 10 * * Tue#2,Sun", "at 10:00 on Sunday and the 2nd Tuesday of the month"),
        ("0 6 * * Fri-Mon", "at 06:00 on Friday to Monday"),
        ("0 6 * * Sat,Sun", "at 06:00 on Saturday and Sunday"),
        ("0 6 * * Mon,Wed,Fri", "at 06:00 on Monday, Wednesday and Friday"),
        ("0 0 1 * Mon", "at 00:00 on the 1st of the month and on every Monday"),
        ("0 0 */2 * Mon", "at 00:00 on every 2nd day of the month from the 1st if that is Monday"),
        ("0 0 */2 * *", "at 00:00 on every 2nd day of the month from the 1st"),
        ("0 0 1-31 * Mon", "at 00:00 every day"),
    ] {
        assert_eq!(Cron::parse(text).unwrap().describe(), sentence, "{text}");
    }
}
