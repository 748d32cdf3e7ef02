//! Runs of fixed seeds, and runs with planted bugs that must be found.

use segue_sim::{Bug, Options, Summary, run, run_only, shorten};

/// Runs with copies of disks.
const COPIES: u64 = 200;

/// Panics, with its last steps, if the run ends as it should not.
fn ends_well(seed: u64, options: Options) -> Summary {
    run(seed, options).unwrap_or_else(|failure| {
        let words = format!("seed {seed}: {}", failure.what);
        // The runner of the tests keeps the end of a long text.
        panic!("{words}\n{}\n{words}", failure.trace.join("\n"))
    })
}

/// Proves S7.9.
#[test]
fn two_hundred_seeds_end_as_they_should() {
    let mut total = Summary::default();
    for seed in 0..200 {
        total.add(&ends_well(seed, Options::default()));
    }
    let crashes = [total.client_crashes, total.server_crashes, total.broken_recoveries];
    let mut faults = [total.lost, total.duplicated].into_iter().chain(crashes);
    assert!(faults.all(|count| count > 20), "{total:?}");
    assert!(total.records > 2_000 && total.conflicts > 20, "{total:?}");
}

/// Each run draws what hosts, disks, links and clocks do to it.
/// Proves S6.12, S9.2.
#[test]
fn six_hundred_seeds_of_the_swarm_end_as_they_should() {
    let mut total = Summary::default();
    for seed in 0..600 {
        total.add(&ends_well(seed, Options::default().swarm(seed)));
    }
    let faults = [total.sleeps, total.jumps, total.full_disks, total.disk_errors, total.resumed];
    assert!(faults.iter().all(|count| *count > 100), "{total:?}");
    let unsent = [total.cancelled, total.superseded, total.amended, total.taken_back];
    assert!(unsent.iter().all(|count| *count > 10), "{total:?}");
    assert!(total.passed_through > 100 && total.map_stores > 10, "{total:?}");
    assert!(total.leaves > 100 && total.differences > 50, "{total:?}");
    assert!(total.uploads_ahead > 100, "{total:?}");
}

/// Seeds that nobody has run before: 200, or 20,000 in a long run. `SEED=N` begins with N.
#[test]
fn fresh_seeds_of_the_swarm_end_as_they_should() {
    let is_long = std::env::var_os("SEGUE_TEST_LONG").is_some_and(|value| value == "1");
    let given = std::env::var("SEED").map(|seed| seed.parse().unwrap());
    // Far from the fixed ones, and no run begins where another one did.
    let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() << 20;
    let first = given.unwrap_or_else(|_| clock());
    eprintln!("SEED={first}");
    for seed in first..first + if is_long { 20_000 } else { 200 } {
        ends_well(seed, Options::default().swarm(seed));
    }
}

/// Threads are process groups and sessions of their own, and sync files.
/// Proves S7.7.
#[test]
fn what_sessions_do_goes_in_their_order() {
    let mut total = Summary::default();
    let given = Options { sessions: true, ..Options::default() };
    for seed in 0..300 {
        total.add(&ends_well(seed, given.swarm(seed)));
    }
    let unsent = [total.cancelled, total.superseded, total.amended, total.taken_back];
    assert!(unsent.iter().all(|count| *count > 5), "{total:?}");
}

/// A file that this host had made longer, and of which it had to store all, ended on the server:
/// what lay beyond was asked for again and again (1788). Of a directory what changed in it was
/// asked for again and again, while what was not known was what unchanged names of it named (2103).
/// Behind a name that this host took back another one's was not seen (6149). The cleaner took what
/// a loss of power brought back (20898). A host acknowledged outcomes that its store, older than
/// the lost end of the log, had to be compared with (11015767). On a full volume a store that went
/// to the host's conflict copy was sent for ever (540). An answer about extended attributes that an
/// outcome had overtaken was believed (1883036632219810). After a loss of power a change had later
/// bytes than its own (210363). Bytes of a write that was only begun were seen when its file grew
/// (316371; with copies 300102). A file that had another quota meanwhile was counted wrong (with
/// copies 316990). The simulator itself did not wait for a map's write (211960), took a log that
/// lost an entry for one that nobody changed (215405), and did not know all removed files (311887).
/// It applied a batch that had been answered, and its host knew nothing of that (718564). An answer
/// about extended attributes hid those that waited for the server (801884). The simulator took a
/// long queue that was refused one by one for one that stood still (802196). A name that another
/// host gave while this host's change of it was on the way was missing from listings (902955).
/// Changes of a file whose attributes were forgotten did not count as pending (610858). A copy that
/// the server makes was empty after a restart (913585). A kernel kept a listing that nobody would
/// take back (925588).
#[test]
fn seeds_of_the_swarm_that_failed_once_end_as_they_should() {
    let seeds = [540, 2103, 1_883_036_632_219_810, 6149, 8031, 20_898, 11_015_767];
    for seed in seeds.into_iter().chain([210_363, 211_960, 311_887, 718_564, 801_884, 802_196]) {
        ends_well(seed, Options::default().swarm(seed));
    }
    for seed in [610_858, 902_955, 913_585, 925_588] {
        ends_well(seed, Options::default().swarm(seed));
    }
    // A kernel showed what an outcome or a listing had replaced.
    for seed in [1_883_161_496_649_912, 500_643, 500_861, 501_034, 501_323] {
        ends_well(seed, Options::default().swarm(seed));
    }
    // The size of refused data was believed after a restart, a change that a full disk gave back
    // was passed by uploads ahead for ever, and a clone lacked what a map had written.
    for seed in [520_321, 509_420, 501_890] {
        ends_well(seed, Options::default().swarm(seed));
    }
    ends_well(316_371, Options::default());
    for seed in [300_102, 316_990] {
        ends_well(seed, Options { copies: true, ..Options::default() }.swarm(seed));
    }
    ends_well(1788, Options { steps: 1000, ..Options::default() }.swarm(1788));
    ends_well(215_405, Options { promises: true, sessions: true, ..Options::default() });
}

/// A host said that it needed outcomes no more before its log said so durably. When it then lost
/// power it sent those records again, and was refused for ever.
/// Proves S13.3, S13.5.
#[test]
fn hosts_that_lose_power_end_as_they_should() {
    let options = Options { power_loss: true, ..Options::default() };
    let mut crashes = 0;
    for seed in 0..100 {
        crashes += ends_well(seed, options).client_crashes;
    }
    assert!(crashes > 20, "{crashes}");
    // The checker believed that the server knows all outcomes for ever.
    ends_well(110_619, options);
    // Bytes of a lost write stood behind the end of a file, and were seen when it grew.
    ends_well(311_156, options);
    ends_well(327_534, options);
    // A store was repeated after the host had heard of a later version: the file's data stayed at
    // a version that the server has no more, and could not be read.
    ends_well(321_781, options);
}

/// Runs that failed once, with their steps and on disks as they were then: what was written to an
/// open file that had a name which another host had given it (10615, 22266), or that another host
/// had removed (14194), was lost; and so was what was written by a name that another host had taken
/// away (50346).
/// A slow reply that a change had overtaken was believed where the cache was full: names were
/// missing (27548, 39978) or made twice (47949, 56080), a rename met a file that it did not
/// know of (48175), a truncation became a conflict copy (55859).
/// Proves S6.18.
#[test]
fn seeds_that_failed_once_end_as_they_should() {
    let lost = [(10615, 400), (14194, 400), (22266, 150), (50346, 400)];
    let late = [27548, 39978, 47949, 48175, 55859, 56080].map(|seed| (seed, 400));
    for (seed, steps) in lost.into_iter().chain(late) {
        ends_well(seed, Options { steps, plain: true, ..Options::default() });
    }
}

/// Hosts that lost power showed, or sent, what nobody had written: bytes of lost writes behind the
/// end of a file that grew again (962), what a truncation had cut off, where the file grew again
/// (67, 85, 314), and zeros in the place of preserved bytes that were on no disk when the log was
/// written anew (1435, 228).
#[test]
fn seeds_that_failed_once_after_a_loss_of_power_end_as_they_should() {
    let short = [962, 1435].map(|seed| (seed, 150));
    let long = [67, 85, 228, 314].map(|seed| (seed, 1000));
    for (seed, steps) in short.into_iter().chain(long) {
        let options = Options { steps, power_loss: true, plain: true, ..Options::default() };
        ends_well(seed, options);
    }
}

/// Found since processes die while they recover: a file that was not noted yet had the server's
/// length (304), and files in doubt were trusted by the next process (141, 6393). A process that
/// died with a nameless file open had not to store it (377), which is what the checker waited for.
#[test]
fn seeds_that_failed_once_after_two_deaths_end_as_they_should() {
    let runs = [(304, 1000, false), (141, 1000, true), (377, 1000, true), (6393, 150, true)];
    for (seed, steps, power_loss) in runs {
        ends_well(seed, Options { steps, power_loss, ..Options::default() });
    }
}

/// Disks of hosts are put back and cloned, the server's is put back, and another server claims the
/// volume.
/// Proves S12.10, S18.6.
#[test]
fn what_is_put_back_or_cloned_loses_nothing() {
    let mut total = Summary::default();
    let given = Options { copies: true, ..Options::default() };
    for seed in 0..COPIES {
        total.add(&ends_well(seed, given.swarm(seed)));
    }
    let copies = [total.put_back, total.cloned, total.servers_put_back, total.other_servers];
    assert!(copies.iter().all(|count| *count > 10), "{total:?}");
    assert!(total.renamed > 10 && total.histories > 5, "{total:?}");
}

/// The number that a file had got instead of its own was not known of a copy of that copy (450,
/// 664). A number that the server had forgotten was two files' (3000869). A directory that another
/// copy had filled was believed to be empty (70). Where a copy made a removed file again, the
/// checker waited for what was never to be stored (267). A file under a number that the server had
/// forgotten to have granted was refused (3001648, 3002289). A host was looked at before it had
/// heard what was lost (840). The index had forgotten a pending name with its directory (3000102,
/// 3002012). A hello named what the index knew, and the log knew more (3002238, 3003745). A new
/// inode got the number of one that another copy had made (3003879). The checker waited for data of
/// files whose removal the server had forgotten (3000016, 3001693, 3001747), or that a copy made
/// again (5004881). A second hello named other numbers than the first one (3002101). The index
/// forgot lost versions, and remembered them after a loss of power (5000053, 5007778). A record
/// about another host's inode was taken for one about a file of a copy (5004150), and a name meant
/// the other inode (5004239). A host that slept through the end of a history was looked at before
/// it had heard of that (5006976). Writes to a removed file were read as the server's (6001077,
/// 6010133). A directory that was made and removed unsent was believed to be empty under its number
/// (6010573). A file was taken for a directory that a copy had made (6004177). A file that a copy
/// made again stayed removed (6005835). Outcomes in the log that the server had forgotten were
/// believed by a process that knew a later version as well (20012). A removed file that a server
/// which was put back has again stayed hidden (1925). A renamed file whose data were refused was
/// read as so many zeros (294). A removed file that was written to through a handle stayed hidden
/// (104117), or was sealed with bytes that were in no log (110984). A host believed a promise for a
/// file that its own removal hid (109092). A host told a version as known that was forgotten, and
/// heard nothing of others (173). A kernel read old data of a conflict copy to which a later store
/// of its host had gone (116000). The checker knew no version of what is left of a removed file
/// (6009353), and waited for hosts that had not noticed a new server (7000146). An older listing
/// was believed, because a change in the directory was pending (323855). Two copies of a cache took
/// the session from each other for ever (309400, 316976, 317740). The checker did not know that a
/// file with pending changes is shown later (304205), nor that zeros stand behind the end of a file
/// (322923), nor that what was written to a file without a name is gone with its last handle
/// (710159). The simulator wrote to a file that no name leads to (326723).
#[test]
fn seeds_with_copies_that_failed_once_end_as_they_should() {
    let given = Options { copies: true, ..Options::default() };
    let small = [70, 173, 267, 294, 450, 664, 840, 1925, 20_012].into_iter();
    let small = small.chain([104_117, 109_092, 110_984, 116_000, 304_205, 309_400, 316_976]);
    let small = small.chain([317_740, 322_923, 323_855, 326_723, 710_159]);
    let large = [16, 102, 869, 1648, 1693, 1747, 2012, 2101, 2238, 2289, 3745, 3879];
    let larger = [53, 4150, 4239, 4881, 6976, 7778].map(|seed| 5_000_000 + seed);
    let largest = [1077, 4177, 5835, 9353, 10_133, 10_573, 1_000_146].map(|seed| 6_000_000 + seed);
    for seed in small.chain(large.map(|seed| 3_000_000 + seed)).chain(larger).chain(largest) {
        ends_well(seed, given.swarm(seed));
    }
}

#[test]
fn a_seed_is_one_run() {
    for seed in 0..10 {
        assert_eq!(run(seed, Options::default()).unwrap(), run(seed, Options::default()).unwrap());
    }
}

/// Panics unless one of the first `seeds` seeds shows `bug` as a violation with these words.
fn assert_found(bug: Bug, seeds: u64, words: &str) {
    assert_found_in(bug, 0..seeds, words);
}

fn assert_found_in(bug: Bug, seeds: std::ops::Range<u64>, words: &str) {
    let power_loss = bug.needs_power_loss();
    let (promises, sessions) = (bug.needs_promises(), bug.needs_sessions());
    let copies = bug.needs_copies();
    let given =
        Options { bug: Some(bug), power_loss, promises, sessions, copies, ..Options::default() };
    let is_swarm = bug.needs_swarm() || copies;
    let options = |seed| if is_swarm { given.swarm(seed) } else { given };
    let mut said = Vec::new();
    for seed in seeds {
        if let Err(failure) = run(seed, options(seed)) {
            said.push(failure.what);
            if said.last().is_some_and(|what| what.contains(words)) {
                return;
            }
        }
    }
    panic!("{bug:?}: {said:?}");
}

#[test]
fn a_server_that_forgets_outcomes_is_found() {
    assert_found(Bug::ServerForgetsOutcomes, 30, "applied twice");
}

#[test]
fn a_client_that_acknowledges_what_it_may_forget_is_found() {
    assert_found(Bug::ClientAcksUnsynced, 100, "Copied");
}

#[test]
fn a_client_that_forgets_to_log_is_found() {
    assert_found(Bug::ClientSkipsLog, 100, "nothing became of the acknowledged");
    assert_found(Bug::ClientSkipsLog, 100, "offline");
}

#[test]
fn a_client_that_drops_what_it_wrote_is_found() {
    assert_found(Bug::ClientDropsDirtyData, 30, ", sent");
}

#[test]
fn a_client_that_overwrites_what_is_on_its_way_is_found() {
    assert_found(Bug::ClientOverwritesPending, 60, ", sent");
}

#[test]
fn a_client_that_notes_what_may_be_lost_is_found() {
    assert_found(Bug::ClientNotesUnsynced, 100, "not known though it was noted");
}

#[test]
fn a_client_that_forgets_names_is_found() {
    assert_found(Bug::ClientForgetsNames, 30, "offline");
    assert_found(Bug::ClientForgetsPendingNames, 30, "offline");
}

#[test]
fn a_client_that_forgets_what_is_settled_is_found() {
    assert_found(Bug::ClientForgetsSettled, 100, "Copied");
}

#[test]
fn a_client_that_leaves_logged_bytes_in_the_log_is_found() {
    assert_found(Bug::ClientRedoesNothing, 30, "offline");
}

#[test]
fn a_client_that_believes_in_bytes_that_were_not_synced_is_found() {
    assert_found(Bug::ClientBelievesNotedData, 60, "offline");
}

/// Bytes of a lost write over a change that the server got in time: one seed in 1,000.
#[test]
fn a_client_that_trusts_files_after_a_loss_of_power_is_found() {
    let bug = Some(Bug::ClientTrustsDoubtful);
    let options = Options { bug, power_loss: true, plain: true, ..Options::default() };
    let failure = run(834, options).unwrap_err();
    assert!(failure.what.contains("reads"), "{}", failure.what);
}

/// Its process died as soon as it had taken in what a loss of power left: one seed in 1,000.
#[test]
fn a_client_that_forgets_its_doubt_is_found() {
    let bug = Some(Bug::ClientForgetsDoubt);
    let options = Options { bug, power_loss: true, ..Options::default() };
    let failure = run(14_726, options).unwrap_err();
    assert!(failure.what.contains("reads"), "{}", failure.what);
}

/// It lost power before its disk said durably that the change which it had just sent was another
/// one than at first: one seed in 1,000.
#[test]
fn a_client_that_sends_what_its_log_may_lose_is_found() {
    let options = Options { power_loss: true, ..Options::default() };
    let bug = Some(Bug::ClientSendsRewritten);
    let failure = run(744, Options { bug, ..options }).unwrap_err();
    assert!(failure.what.contains("Copied"), "{}", failure.what);
    ends_well(744, options);
}

#[test]
fn a_client_that_forgets_syncs_is_found() {
    assert_found(Bug::ClientForgetsSyncs, 100, "is sent before");
}

#[test]
fn a_client_that_mixes_groups_is_found() {
    assert_found(Bug::ClientMixesGroups, 100, "is sent before");
}

/// What a loss of power left of what was sent whole stood beside it.
#[test]
fn a_client_that_does_not_say_what_it_may_have_forgotten_is_found() {
    assert_found(Bug::ClientHidesItsLoss, 100, "a conflict with nobody");
}

#[test]
fn a_client_that_logs_sums_of_what_is_written_over_its_own_is_found() {
    assert_found(Bug::ClientSumsWhatOnlyItHas, 400, "are missing");
}

/// Bytes of a write that was torn were shown as the server's.
#[test]
fn a_client_that_believes_in_what_a_torn_write_left_is_found() {
    assert_found(Bug::ClientBelievesTorn, 200, "offline");
}

/// It died again before anything was noted, and the log's older entries said that all of the file
/// was the server's: one seed in 1,000.
#[test]
fn a_client_that_forgets_what_a_torn_write_spoiled_is_found() {
    let options = Options { bug: Some(Bug::ClientForgetsTorn), ..Options::default() };
    let failure = run(1154, options).unwrap_err();
    assert!(failure.what.contains("offline"), "{}", failure.what);
}

#[test]
fn a_client_that_evicts_what_it_wrote_is_found() {
    assert_found(Bug::ClientEvictsPending, 30, ", sent");
}

#[test]
fn a_client_that_believes_that_what_was_evicted_is_there_is_found() {
    assert_found_in(Bug::ClientBelievesEvicted, 110..120, "reads Ok(");
}

#[test]
fn a_server_that_believes_differences_is_found() {
    assert_found(Bug::ServerBelievesDifferences, 30, "is cached as");
}

#[test]
fn a_client_that_does_not_look_at_maps_is_found() {
    assert_found_in(Bug::ClientForgetsMaps, 183..184, "reads Ok(");
}

/// A kernel went on to read a version that the server had no more, after it was put back.
#[test]
fn a_client_whose_kernel_reads_another_version_is_found() {
    assert_found(Bug::ClientKeepsBacking, 30, "of which not all is there");
}

/// What the tests of other bugs of promises do not see: the word of the change is on its way.
#[test]
fn a_server_that_calls_visible_what_others_have_not_heard_of_is_found() {
    assert_found(Bug::ServerShowsUnheard, 60, "is believed to be");
}

/// What it had promised is believed still, by those who find out later that it was gone.
#[test]
fn a_server_that_starts_again_as_if_it_had_promised_nothing_is_found() {
    assert_found(Bug::ServerForgetsSessions, 400, "is believed to be");
}

#[test]
fn hosts_that_are_promised_to_hear_of_changes_end_as_they_should() {
    let options = Options { promises: true, ..Options::default() };
    let mut breaks = 0;
    for seed in 0..300 {
        breaks += ends_well(seed, options).breaks;
    }
    assert!(breaks > 1_000, "{breaks}");
}

/// What was promised was believed too widely: an answer that came behind this host's own removal of
/// the file (128), a listing that came behind a break, as of when it came (232), what was learnt
/// before the promise was given (2469). A name was forgotten while its directory's listing stayed
/// (1670), and one that this host had made was believed because of a listing that came while that
/// was under way (7866). A conflict copy of which this host knew nothing was shown as it was before
/// its own change, by an answer that came behind the outcome (24). An outcome that the server
/// repeated was believed as of the repetition (14, once sessions went on), and a rename that did
/// nothing as if it had (1197). A file that was removed here under
/// one name was written under another, in a container that was removed then (15415). What had been
/// written to a container that a file has no more was taken for undone, and the index for newer
/// than it was (19434).
#[test]
fn seeds_that_failed_once_with_promises_end_as_they_should() {
    let short = [14, 128, 232, 1670, 2469, 7866, 15415, 19434].map(|seed| (seed, 150));
    for (seed, steps) in short.into_iter().chain([(24, 1000), (1197, 1000)]) {
        ends_well(seed, Options { steps, promises: true, ..Options::default() });
    }
}

/// Who lists a directory again is told what changed in it.
#[test]
fn a_server_that_does_not_say_what_is_gone_is_found() {
    assert_found(Bug::ServerForgetsGone, 300, "lists");
}

/// Its clock stands still while the host sleeps, so the lease seems to last.
#[test]
fn a_client_that_does_not_count_sleep_is_found() {
    assert_found(Bug::ClientSleepsOnLease, 150, "believed");
}

/// The disk was full in the middle of a write, and what stood there before was taken to be there
/// still.
#[test]
fn a_client_that_forgets_what_a_failed_write_spoiled_is_found() {
    assert_found(Bug::ClientForgetsSpoiled, 250, "reads");
}

/// Another host's version was learnt of while bytes of the one before were on their way: one seed
/// in 2,000.
#[test]
fn a_client_that_takes_bytes_of_another_version_is_found() {
    let bug = Some(Bug::ClientFillsStale);
    let failure = run(54181, Options { bug, ..Options::default() }.swarm(54181)).unwrap_err();
    assert!(failure.what.contains("is cached as"), "{}", failure.what);
}

#[test]
fn a_server_that_leaks_references_is_found() {
    assert_found(Bug::ServerLeaksReferences, 10, "a check of the volume");
}

/// A put-back cache sent new changes under numbers that the server knew.
#[test]
fn a_server_that_welcomes_copies_is_found() {
    assert_found(Bug::ServerWelcomesCopies, 30, "is answered with what became of another one");
}

#[test]
fn a_client_that_trusts_any_server_is_found() {
    assert_found(Bug::ClientGreetsAnyServer, 30, "another server is asked for");
}

#[test]
fn a_client_that_amends_what_it_uploaded_is_found() {
    assert_found(Bug::ClientAmendsUploaded, 50, ", sent");
}

/// Two hosts made files of one name and size: one seed in 1,000.
#[test]
fn a_client_that_merges_files_which_differ_is_found() {
    assert_found_in(Bug::ClientMergesUnlike, 1046..1047, "is merged away");
}

/// Two histories gave one version to different data.
#[test]
fn a_server_that_counts_on_after_it_was_put_back_is_found() {
    assert_found_in(Bug::ServerBeginsNoLife, 20..40, "is given twice");
}

#[test]
fn a_client_that_believes_a_lost_history_is_found() {
    assert_found(Bug::ClientBelievesForgotten, 100, "believed as of forgotten");
}

/// What is left of a run fails in the same way, and by itself.
#[test]
fn a_run_that_fails_is_told_in_short() {
    let options = Options { bug: Some(Bug::ServerLeaksReferences), ..Options::default() };
    let options = options.swarm(6);
    let whole = run(6, options).unwrap_err();
    let (numbers, what) = (whole.numbers, whole.what.clone());
    let (only, failure) = shorten(6, options, whole);
    assert!(only.numbers.len() as u64 * 5 < numbers, "{} of {numbers}", only.numbers.len());
    assert!(what.starts_with("a check of the volume"), "{what}");
    let again = run_only(6, options, &only).unwrap_err();
    assert_eq!((&again.what, &again.trace), (&failure.what, &failure.trace));
}

#[test]
fn a_server_that_loses_breaks_is_found() {
    assert_found(Bug::ServerLosesBreaks, 30, "the kernel shows");
}

/// It says that nothing has changed while they were away.
#[test]
fn a_server_that_resumes_without_looking_is_found() {
    assert_found(Bug::ServerResumesUnread, 300, "believed");
}

/// Others may have changed what the outcome said when it was new.
#[test]
fn a_server_that_promises_what_it_repeats_is_found() {
    assert_found(Bug::ServerPromisesRepeated, 100, "believed");
}

/// What a host did not hear before it was away is not told again.
#[test]
fn a_server_that_takes_for_heard_what_was_not_answered_is_found() {
    assert_found(Bug::ServerCountsUnheard, 2000, "believed");
}

#[test]
fn a_client_that_comes_back_and_believes_everything_is_found() {
    assert_found(Bug::ClientResumesAll, 300, "believed");
}

#[test]
fn a_client_that_keeps_promises_for_ever_is_found() {
    assert_found(Bug::ClientKeepsPromises, 60, "believed");
}

/// It takes nothing back when the lease or the session ends, and when its host slept.
#[test]
fn a_kernel_that_keeps_what_it_was_told_is_found() {
    assert_found(Bug::ClientKeepsTold, 60, "the kernel shows");
}

#[test]
fn a_client_that_believes_answers_behind_breaks_is_found() {
    assert_found(Bug::ClientForgetsBreaks, 300, "believed");
}

#[test]
fn a_server_that_forgets_what_hosts_have_changed_is_found() {
    assert_found(Bug::ServerForgetsMarks, 60, "as if all of it were there");
}

#[test]
fn a_server_that_notes_once_what_hosts_have_made_is_found() {
    assert_found(Bug::ServerKeepsAnnounced, 60, "as no other host has it any more");
}

#[test]
fn a_server_that_waits_and_believes_that_all_came_is_found() {
    assert_found(Bug::ServerOpensUnsent, 400, "as if all of it were there");
}

#[test]
fn a_client_that_sends_nothing_of_what_others_wait_for_is_found() {
    assert_found(Bug::ClientPullsNothing, 60, "as if all of it were there");
}
